//! Records that are none, and starts that are not over.

use std::time::Duration;

use bytes::Bytes;
use waypost_core::{Headers, InstanceKey, LifeId, Offset, PartitionId, Timestamp, Topic};
use waypost_fold::{FoldEvent, Life, Missing, Outcome, Refusal, RefusalReason, RejectReason};

use waypost_sim::{Sim, count, mk_announcement, mk_key, mk_record, order};

/// A record as anybody could write it.
struct Raw {
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Vec<(&'static str, &'static str)>,
}

impl Raw {
    fn append(self, sim: &Sim) -> Offset {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(n, v)| (*n, v.as_bytes()))
            .collect();
        let (topic, partition) = (Topic::Announcements, PartitionId(0));
        let appended = sim
            .log
            .append_raw(topic, partition, self.key, self.value, &headers);
        appended.unwrap()
    }
}

fn raw(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: Vec<(&'static str, &'static str)>,
) -> Raw {
    Raw {
        key: key.map(Bytes::copy_from_slice),
        value: value.map(Bytes::copy_from_slice),
        headers,
    }
}

/// Records that are none, each with the label of why.
fn bad_records(key: &InstanceKey) -> Vec<(&'static str, Raw)> {
    let content = waypost_proto::announcement::encode(&mk_announcement(key));
    let record_key = key.to_record_key();
    let k = Some(&*record_key);
    let v = Some(&*content);
    let other = mk_key("greeter", "b").to_record_key();
    let huge = vec![0; 70_000];
    let bare = Vec::new;
    vec![
        ("no_key", raw(None, v, bare())),
        ("key", raw(Some(b"\xff\xfe"), v, bare())),
        ("key", raw(Some(b""), v, bare())),
        ("key", raw(Some(b"no zero byte"), None, bare())),
        ("announcement", raw(k, Some(b"\xff\xff\xff"), bare())),
        ("announcement", raw(k, Some(b""), bare())),
        ("announcement", raw(k, Some(&huge), bare())),
        ("other_instance", raw(Some(&other), v, bare())),
        ("header", raw(k, v, vec![("waypost-kind", "shout")])),
        (
            "header",
            raw(k, v, vec![("waypost-birth", "99999999999999999999")]),
        ),
        ("header", raw(k, v, vec![("waypost-seq", "-1")])),
        ("form", raw(k, v, vec![("waypost-birth", "5")])),
        (
            "form",
            raw(k, None, vec![("waypost-id", "5"), ("waypost-seq", "1")]),
        ),
        ("form", raw(k, None, vec![("waypost-kind", "withdraw")])),
        (
            "form",
            raw(
                k,
                v,
                vec![("waypost-kind", "withdraw"), ("waypost-id", "1")],
            ),
        ),
        ("form", raw(k, None, vec![("waypost-kind", "expire")])),
        ("form", raw(k, None, vec![("waypost-kind", "tick")])),
        ("form", raw(Some(b"\0tick"), None, bare())),
        (
            "form",
            raw(Some(b"\0tick"), None, vec![("waypost-kind", "tick")]),
        ),
        (
            "form",
            raw(
                Some(b"\0tick"),
                None,
                vec![
                    ("waypost-kind", "tick"),
                    ("waypost-keeper", "1"),
                    ("waypost-time", "9223372036854775807"),
                ],
            ),
        ),
        (
            "form",
            raw(
                Some(b"\0identity"),
                None,
                vec![("waypost-kind", "identity")],
            ),
        ),
    ]
}

#[test]
fn s20_a_record_that_is_none_is_skipped_and_counted_and_the_rest_flows() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.announce(1, &key);
    sim.run_s(5);
    let digests = sim.observers[0].digests();
    for (i, (label, record)) in bad_records(&key).into_iter().enumerate() {
        let offset = record.append(&sim);
        sim.run_s(1);
        let outcome = sim.observers[0].find_outcome(PartitionId(0), offset);
        let Some(Outcome::Rejected(reason)) = outcome else {
            panic!("case {i}, {label}: {outcome:?}");
        };
        assert_eq!(reason.as_str(), label, "case {i}: {reason}");
        assert_eq!(reason.to_string().lines().count(), 1);
        let told =
            |e: &FoldEvent| matches!(e, FoldEvent::Rejected { offset: o, .. } if *o == offset);
        assert_eq!(count(&sim.observers[0], told), 1);
        assert_eq!(sim.observers[0].fold().counters().rejected, i as u64 + 1);
    }
    assert_eq!(sim.observers[0].digests(), digests, "what was good stands");
    sim.announcers[0].change(2.0);
    sim.run_s(1);
    assert_ne!(sim.observers[0].digests(), digests, "the rest flows");
    assert!(sim.all_serve(&[&key]));
    sim.finish();
}

#[test]
fn reserved_keys_of_later_releases_are_ignored() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    let offset = raw(Some(b"\0later"), Some(b"?"), Vec::new()).append(&sim);
    sim.run_s(1);
    let outcome = sim.observers[0].find_outcome(PartitionId(0), offset);
    assert_eq!(outcome, Some(&Outcome::Ignored));
}

#[test]
fn records_delivered_twice_are_read_once() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.append(mk_record(
        &key,
        Some(&mk_announcement(&key)),
        order(1, Some(1), 0),
    ));
    sim.run_s(1);
    let record = sim.log.records(Topic::Announcements).pop().unwrap();
    let mut events = Vec::new();
    let outcome = sim.observers[0].fold().clone().apply(&record, &mut events);
    assert_eq!((outcome, events), (Outcome::AlreadyRead, vec![]));
}

#[test]
fn absurd_births_and_ages_do_not_overflow() {
    let key = mk_key("greeter", "a");
    let content = mk_announcement(&key);
    let mut sim = Sim::new(1);
    sim.observe(1);
    for (birth, age_ms) in [
        (Some(i64::MAX), None),
        (None, Some(i64::MAX)),
        (Some(0), Some(0)),
    ] {
        let headers = Headers {
            id: Some(LifeId(1)),
            birth: birth.map(Timestamp),
            age_ms,
            seq: Some(u64::MAX),
            ..Headers::default()
        };
        sim.append(mk_record(&key, Some(&content), headers));
        sim.run_s(1);
        assert!(sim.all_serve(&[&key]));
    }
}

#[test]
fn s16_a_partition_that_is_not_read_yet_is_named_until_it_is() {
    let mut sim = Sim::new(4);
    sim.observe(1);
    sim.run_s(10);
    for i in 0..40 {
        sim.announce(i, &mk_key("greeter", &format!("h{i}")));
    }
    sim.run_s(30);
    let late = sim.observe(2);
    sim.observers[late].block([PartitionId(2), PartitionId(3)]);
    sim.run_s(60);
    let missing = sim.observers[late].loading().missing();
    assert!(!sim.observers[late].loading().is_loaded());
    assert_eq!(missing.len(), 2);
    for (missing, expected) in missing.iter().zip([2, 3]) {
        let Missing::Position {
            topic, partition, ..
        } = missing
        else {
            panic!("{missing:?}");
        };
        assert_eq!((*topic, partition.0), (Topic::Announcements, expected));
        let text = missing.to_string();
        assert!(
            text.contains(&format!("announcements partition {expected}")),
            "{text}"
        );
    }
    assert!(
        !sim.observers[late].is_keeper(),
        "who is behind does not tick"
    );
    sim.observers[late].unblock();
    sim.run_until("loaded", 1, |sim| sim.observers[late].loading().is_loaded());
    assert_eq!(sim.observers[late].loading().missing(), []);
    assert_eq!(sim.observers[late].served_keys().len(), 40);
    sim.finish();
}

#[test]
fn reasons_are_one_line_that_says_what_is_wrong() {
    let text = RejectReason::NoKey.to_string();
    assert!(text.contains("CLUSTER, one zero byte, URI"), "{text}");
    let life = |id: Option<u64>, birth: Option<i64>| Life {
        id: id.map(LifeId),
        birth: birth.map(Timestamp),
        seq: 4,
    };
    let standing = life(Some(0xabc), Some(2_500));
    let cases = [
        (
            RefusalReason::Older,
            life(Some(1), Some(1_000)),
            "refused: older than life 0000000000000abc, which was born 1.500 s later, \
             from host h-1 (partition 3, offset 7)",
        ),
        (
            RefusalReason::Older,
            life(Some(1), Some(2_500)),
            "refused: born together with life 0000000000000abc, which stands, \
             from host h-1 (partition 3, offset 7)",
        ),
        (
            RefusalReason::Older,
            life(Some(1), None),
            "refused: without a birth it does not act on life 0000000000000abc, \
             from host h-1 (partition 3, offset 7)",
        ),
        (
            RefusalReason::Withdrawn,
            life(None, Some(1_000)),
            "refused: life 0000000000000abc was withdrawn, and this is not newer than that, \
             from host h-1 (partition 3, offset 7)",
        ),
    ];
    for (reason, life, expected) in cases {
        let refusal = Refusal {
            reason,
            partition: PartitionId(3),
            offset: Offset(7),
            append_time: Timestamp(0),
            life,
            standing,
            hostname: "h-1".into(),
            ttl: Duration::ZERO,
        };
        assert_eq!(refusal.to_string(), expected);
    }
}
