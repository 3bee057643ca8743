//! One instance through changes, failures and time; then any interleaving of them.

use proptest::prelude::*;
use waypost_core::{ClusterName, Health, InstanceUri, Offset, PartitionId};

use super::*;

fn mk_machine() -> Machine {
    Machine::new(mk_content(), LifeId(42))
}

fn mk_content() -> Announcement {
    Announcement::new(
        ClusterName::parse("greeter").unwrap(),
        InstanceUri::parse("grpc://10.0.0.1:1").unwrap(),
        Timestamp(0),
    )
}

fn mk_stamp(n: i64) -> Stamp {
    Stamp {
        origin: Timestamp(n),
        tracing_id: n.to_string(),
    }
}

fn mk_appended(append_time: Option<i64>) -> Appended {
    Appended {
        partition: PartitionId(0),
        offset: Offset(7),
        append_time: append_time.map(Timestamp),
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn expect_write(machine: &mut Machine, now: Duration) -> InstanceRecord {
    match machine.poll(now) {
        Next::Write(record) => record,
        other => panic!("expected a write at {now:?}, got {other:?}"),
    }
}

fn expect_at(machine: &mut Machine, now: Duration) -> Duration {
    match machine.poll(now) {
        Next::At(at) => at,
        other => panic!("expected a pause at {now:?}, got {other:?}"),
    }
}

/// An instance that is announced, with its birth, since `ms(20)`.
fn mk_announced() -> (Machine, InstanceRecord) {
    let mut machine = mk_machine();
    machine.mark_up(ms(0), mk_stamp(1));
    expect_write(&mut machine, ms(0));
    machine.acknowledged(mk_appended(Some(5_000)), ms(10));
    let record = expect_write(&mut machine, ms(10));
    machine.acknowledged(mk_appended(Some(5_010)), ms(20));
    (machine, record)
}

#[test]
fn age_is_sent_until_the_log_tells_its_time_and_then_birth_with_a_second_announcement() {
    let mut machine = mk_machine();
    machine.mark_up(ms(1000), mk_stamp(1));
    let first = expect_write(&mut machine, ms(1000));
    assert_eq!((first.headers.age_ms, first.headers.birth), (Some(0), None));
    machine.failed(&SinkError::Unavailable("away".into()), ms(1500));
    let at = expect_at(&mut machine, ms(1500));
    let second = expect_write(&mut machine, at);
    assert_eq!(second.headers.age_ms, Some(millis(at - ms(1000))));
    assert_eq!(second.headers.seq, first.headers.seq);
    // The log does not say when: age goes on.
    machine.acknowledged(mk_appended(None), ms(2000));
    let at = expect_at(&mut machine, ms(2000));
    let third = expect_write(&mut machine, at);
    assert_eq!(
        (third.headers.birth, third.delivery),
        (None, Delivery::Heartbeat)
    );
    // Now it does: birth is that time less all the time passed, and it is announced again at once.
    machine.acknowledged(mk_appended(Some(100_000)), ms(11_000));
    let fourth = expect_write(&mut machine, ms(11_000));
    assert_eq!(fourth.headers.birth, Some(Timestamp(90_000)));
    assert_eq!(
        (fourth.headers.age_ms, fourth.delivery),
        (None, Delivery::Change)
    );
    assert_eq!(fourth.headers.seq, first.headers.seq);
    assert_eq!(fourth.value, first.value);
}

#[test]
fn a_heartbeat_is_the_same_record_byte_for_byte() {
    let (mut machine, announced) = mk_announced();
    let mut now = ms(20);
    for _ in 0..5 {
        now = expect_at(&mut machine, now);
        let beat = expect_write(&mut machine, now);
        assert_eq!(beat.delivery, Delivery::Heartbeat);
        assert_eq!(
            (&beat.value, beat.headers),
            (&announced.value, announced.headers)
        );
        machine.acknowledged(mk_appended(Some(9_000)), now);
    }
}

#[test]
fn changes_take_the_next_number_and_equal_content_is_no_change() {
    let (mut machine, announced) = mk_announced();
    let mut content = machine.content().clone();
    machine.change(content.clone(), ms(30), mk_stamp(2));
    assert!(matches!(machine.poll(ms(30)), Next::At(_)));
    content.health = Health::Unhealthy;
    machine.change(content, ms(30), mk_stamp(3));
    let changed = expect_write(&mut machine, ms(30));
    assert_eq!(changed.headers.seq, announced.headers.seq.map(|s| s + 1));
    assert_eq!(changed.headers.birth, announced.headers.birth);
    assert_eq!(changed.delivery, Delivery::Change);
    machine.acknowledged(mk_appended(None), ms(31));
    machine.mark_down(ms(40));
    let withdrawal = expect_write(&mut machine, ms(40));
    assert_eq!(withdrawal.value, None);
    assert_eq!(withdrawal.headers.kind, RecordKind::Withdraw);
    assert_eq!(withdrawal.headers.seq, announced.headers.seq.map(|s| s + 2));
    machine.acknowledged(mk_appended(None), ms(41));
    assert_eq!(machine.poll(ms(1_000_000)), Next::Wait);
    machine.mark_up(ms(50), mk_stamp(4));
    let again = expect_write(&mut machine, ms(50));
    assert_eq!(again.headers.seq, announced.headers.seq.map(|s| s + 3));
    assert_eq!(again.headers.id, announced.headers.id);
}

#[test]
fn changes_made_while_a_write_is_under_way_are_one_write() {
    let (mut machine, _) = mk_announced();
    let now = expect_at(&mut machine, ms(20));
    expect_write(&mut machine, now);
    for health in [Health::Unhealthy, Health::Healthy, Health::Draining] {
        let mut content = machine.content().clone();
        content.health = health;
        machine.change(content, now, mk_stamp(9));
        assert_eq!(machine.poll(now), Next::Wait);
    }
    machine.acknowledged(mk_appended(None), now);
    assert!(!machine.status().is_settled(), "an older write settled it");
    let record = expect_write(&mut machine, now);
    let value = waypost_proto::announcement::decode(&record.value.unwrap()).unwrap();
    assert_eq!(value.health, Health::Draining);
    machine.acknowledged(mk_appended(None), now);
    assert!(matches!(machine.poll(now), Next::At(_)));
}

#[test]
fn an_instance_that_nobody_can_have_heard_of_is_not_withdrawn_and_one_that_may_be_is() {
    let mut machine = mk_machine();
    machine.mark_up(ms(0), mk_stamp(1));
    machine.mark_down(ms(0));
    assert_eq!(machine.poll(ms(0)), Next::Wait);
    assert!(machine.status().is_settled());

    machine.mark_up(ms(1), mk_stamp(1));
    expect_write(&mut machine, ms(1));
    machine.mark_down(ms(2));
    machine.failed(&SinkError::Unavailable("timed out".into()), ms(3));
    assert!(!machine.status().is_settled());
    let at = expect_at(&mut machine, ms(3));
    let withdrawal = expect_write(&mut machine, at);
    assert_eq!(withdrawal.headers.kind, RecordKind::Withdraw);
    assert!(withdrawal.headers.age_ms.is_some());
    machine.acknowledged(mk_appended(Some(1)), at);
    assert_eq!(machine.poll(at), Next::Wait);
    assert!(machine.status().is_settled());
}

#[test]
fn a_process_that_slept_past_its_ttl_announces_itself_again_at_once() {
    let (mut machine, announced) = mk_announced();
    let beat = expect_write(&mut machine, ms(20) + Duration::from_secs(3600));
    assert_eq!(
        (&beat.value, beat.headers),
        (&announced.value, announced.headers)
    );
}

#[test]
fn an_answer_that_a_process_reads_after_a_long_sleep_is_no_beat_of_now() {
    let (mut machine, _) = mk_announced();
    let now = expect_at(&mut machine, ms(20));
    expect_write(&mut machine, now);
    let awake = now + Duration::from_secs(3600);
    machine.acknowledged(mk_appended(None), awake);
    assert_eq!(
        expect_write(&mut machine, awake).delivery,
        Delivery::Heartbeat
    );
}

#[test]
fn a_verdict_is_asked_for_with_every_beat_and_that_of_an_older_change_says_nothing() {
    let (mut machine, announced) = mk_announced();
    assert!(announced.wants_verdict);
    machine.judged(machine.seq(), Verdict::Refused("older".into()));
    assert!(matches!(
        machine.status().progress,
        Progress::Refused { .. }
    ));
    let now = expect_at(&mut machine, ms(20));
    assert!(expect_write(&mut machine, now).wants_verdict);
    machine.acknowledged(mk_appended(None), now);
    assert!(matches!(
        machine.status().progress,
        Progress::Refused { .. }
    ));
    // A late word about the change before this one says nothing of this one.
    machine.judged(machine.seq() - 1, Verdict::Served);
    machine.judged(machine.seq(), Verdict::Unknown("broken stream".into()));
    assert!(matches!(
        machine.status().progress,
        Progress::Refused { .. }
    ));
    machine.judged(machine.seq(), Verdict::Served);
    assert!(matches!(machine.status().progress, Progress::Served(_)));
    // Another process may take it over.
    let now = expect_at(&mut machine, now);
    assert!(expect_write(&mut machine, now).wants_verdict);
    machine.acknowledged(mk_appended(None), now);
    machine.judged(machine.seq(), Verdict::Refused("older".into()));
    assert!(matches!(
        machine.status().progress,
        Progress::Refused { .. }
    ));
}

#[test]
fn who_outlives_the_one_that_took_over_and_withdrew_announces_itself_as_a_new_life() {
    let (mut machine, announced) = mk_announced();
    let refused = Verdict::Refused("older".into());
    assert_eq!(machine.judged(machine.seq(), refused), Consequence::None);
    let withdrawn = || Verdict::Withdrawn("the later one was withdrawn".into());
    let seq = machine.seq();
    assert_eq!(machine.judged(seq - 1, withdrawn()), Consequence::None);
    assert_eq!(machine.judged(seq, withdrawn()), Consequence::NewLife);
    let now = ms(5_000);
    machine.begin_new_life(LifeId(43), now, mk_stamp(2));
    let again = expect_write(&mut machine, now);
    assert_eq!(again.headers.id, Some(LifeId(43)));
    assert_eq!((again.headers.birth, again.headers.age_ms), (None, Some(0)));
    assert!(again.headers.seq > announced.headers.seq);
    assert_eq!(again.delivery, Delivery::Change);
    // A verdict on the old life comes late.
    assert_eq!(machine.judged(seq, withdrawn()), Consequence::None);
    machine.acknowledged(mk_appended(Some(9_000_000)), now);
    let born = expect_write(&mut machine, now);
    assert_eq!(born.headers.birth, Some(Timestamp(9_000_000)));
    machine.acknowledged(mk_appended(None), now);
    machine.mark_down(now);
    assert_eq!(
        machine.judged(machine.seq(), withdrawn()),
        Consequence::None,
        "nobody wants it up"
    );
}

#[test]
fn a_change_is_not_held_up_by_the_pauses_of_what_it_replaces() {
    let mut machine = mk_machine();
    machine.mark_up(ms(0), mk_stamp(1));
    let mut now = ms(0);
    for _ in 0..12 {
        expect_write(&mut machine, now);
        machine.failed(&SinkError::Unavailable("away".into()), now);
        now = expect_at(&mut machine, now);
    }
    let long = expect_write(&mut machine, now);
    machine.failed(&SinkError::Unavailable("away".into()), now);
    machine.mark_down(now + ms(1));
    let withdrawal = expect_write(&mut machine, now + ms(1));
    assert_eq!(withdrawal.headers.seq, long.headers.seq.map(|s| s + 1));
    // A pause of the new change starts small again.
    machine.mark_up(now + ms(2), mk_stamp(2));
    machine.failed(&SinkError::Unavailable("away".into()), now + ms(2));
    assert!(expect_at(&mut machine, now + ms(2)) <= now + ms(2) + crate::limits::RETRY_FIRST);
}

/// What happens to an instance.
#[derive(Clone, Debug)]
enum Step {
    Pass(u16),
    Up,
    Down,
    Health(Health),
    Acknowledge { with_time: bool },
    Lose,
    Refuse,
    Judge(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let health = prop_oneof![
        Just(Health::Healthy),
        Just(Health::Draining),
        Just(Health::Unhealthy)
    ];
    let step = prop_oneof![
        3 => (0..20_000_u16).prop_map(Step::Pass),
        1 => Just(Step::Up),
        1 => Just(Step::Down),
        2 => health.prop_map(Step::Health),
        3 => any::<bool>().prop_map(|with_time| Step::Acknowledge { with_time }),
        2 => Just(Step::Lose),
        1 => Just(Step::Refuse),
        1 => any::<bool>().prop_map(Step::Judge),
    ];
    prop::collection::vec(step, 1..80)
}

/// Drives a machine, remembers all it wrote and checks the order data of each record.
struct Model {
    machine: Machine,
    now: Duration,
    first_attempt: Option<Duration>,
    written: Vec<InstanceRecord>,
    under_way: bool,
}

impl Model {
    fn poll(&mut self) {
        if let Next::Write(record) = self.machine.poll(self.now) {
            assert!(!self.under_way, "two records under way");
            self.under_way = true;
            self.check(&record);
            self.written.push(record);
        }
    }

    fn check(&mut self, record: &InstanceRecord) {
        let headers = record.headers;
        let first = *self.first_attempt.get_or_insert(self.now);
        assert_eq!(headers.id, Some(LifeId(42)));
        assert!(headers.birth.is_some() != headers.age_ms.is_some());
        assert!(
            headers
                .age_ms
                .is_none_or(|age| age == millis(self.now - first))
        );
        assert_eq!(record.value.is_none(), headers.kind == RecordKind::Withdraw);
        let Some(before) = self.written.last() else {
            return;
        };
        assert!(headers.seq >= before.headers.seq, "seq went back");
        assert!(before.headers.birth.is_none() || headers.birth == before.headers.birth);
        if headers.seq == before.headers.seq {
            assert_eq!(record.value, before.value, "other content under one number");
        } else {
            assert!(
                record.value != before.value || record.value.is_none(),
                "the same content under another number"
            );
        }
    }

    fn acknowledge(&mut self, with_time: bool) {
        if std::mem::take(&mut self.under_way) {
            let time = with_time.then(|| 1_000_000 + millis(self.now));
            self.machine.acknowledged(mk_appended(time), self.now);
        }
    }

    fn fail(&mut self, error: &SinkError) {
        if std::mem::take(&mut self.under_way) {
            self.machine.failed(error, self.now);
        }
    }

    fn step(&mut self, step: &Step, n: i64) {
        match step {
            Step::Pass(millis) => self.now += ms((*millis).into()),
            Step::Up => self.machine.mark_up(self.now, mk_stamp(n)),
            Step::Down => self.machine.mark_down(self.now),
            Step::Health(health) => {
                let mut content = self.machine.content().clone();
                content.health = *health;
                self.machine.change(content, self.now, mk_stamp(n));
            }
            Step::Acknowledge { with_time } => self.acknowledge(*with_time),
            Step::Lose => self.fail(&SinkError::Unavailable("lost".into())),
            Step::Refuse => self.fail(&SinkError::Refused("no".into())),
            Step::Judge(is_served) => {
                let verdict = if *is_served {
                    Verdict::Served
                } else {
                    Verdict::Refused("older".into())
                };
                self.machine.judged(self.machine.seq(), verdict);
            }
        }
        self.poll();
    }

    /// The log works: within one longest pause what is wanted stands, and stays.
    fn settle(&mut self) {
        for _ in 0..5 {
            self.acknowledge(true);
            self.now += crate::limits::RETRY_MAX;
            self.poll();
        }
        self.acknowledge(true);
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_last_wanted_state_is_written_in_order(steps in steps()) {
        let mut model = Model {
            machine: mk_machine(),
            now: ms(0),
            first_attempt: None,
            written: Vec::new(),
            under_way: false,
        };
        for (n, step) in (1..).zip(&steps) {
            model.step(step, n);
        }
        model.settle();
        let machine = &model.machine;
        prop_assert!(machine.status().is_settled());
        prop_assert_eq!(machine.status().trouble, None);
        match (machine.status().wanted, model.written.last()) {
            (Wanted::Down, None) => {}
            (Wanted::Down, Some(last)) => prop_assert_eq!(&last.value, &None),
            (Wanted::Up, Some(last)) => {
                let content = waypost_proto::announcement::decode(last.value.as_ref().unwrap());
                prop_assert_eq!(content.as_ref(), Ok(machine.content()));
                prop_assert_eq!(last.headers.seq, Some(machine.seq()));
                prop_assert!(last.headers.birth.is_some());
            }
            (Wanted::Up, None) => prop_assert!(false, "wanted, but never written"),
        }
    }
}
