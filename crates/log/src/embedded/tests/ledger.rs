//! What compaction may remove, against a history that forgets nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use waypost_core::partition::PartitionId;
use waypost_core::record::{Headers, LogIdentity, Offset, Record, Topic};
use waypost_core::time::{Timestamp, millis};

use crate::embedded::ledger::{Ledger, Retention};
use crate::embedded::store::Contents;
use crate::embedded::stored::Place;

const TOPIC: Topic = Topic::Announcements;
const PARTITION: PartitionId = PartitionId(0);
const KEYS: [&str; 3] = ["a", "b", "c"];
const RETENTION: Retention = Retention {
    compaction_lag: Duration::from_millis(100),
    delete_retention: Duration::from_millis(300),
};

/// One record: after how long, of which key, with which value (0: a tombstone).
type Step = (u8, usize, u8);

fn mk_contents() -> Contents {
    Contents::empty(
        LogIdentity(1),
        [(TOPIC, 1), (Topic::Config, 1), (Topic::Control, 1)],
    )
}

/// The ledger, what it left on disk, and all that ever was.
struct Model {
    ledger: Ledger,
    stored: BTreeMap<Offset, Record>,
    history: Vec<Record>,
    now: Timestamp,
}

impl Model {
    fn step(&mut self, (later, key, value): Step) {
        self.now.0 += i64::from(later);
        let assigned = self.ledger.assign(TOPIC, PARTITION, self.now);
        let (offset, append_time) = assigned.expect("the partition exists");
        let record = Record {
            partition: PARTITION,
            offset,
            append_time,
            key: Some(KEYS[key].into()),
            value: (value > 0).then(|| vec![value].into()),
            headers: Ok(Headers::default()),
        };
        let replaced = self.ledger.apply(Place::of(TOPIC, &record), &record);
        self.stored.insert(offset, record.clone());
        self.history.push(record);
        let removable = self.ledger.take_removable(self.now, RETENTION, usize::MAX);
        for place in replaced.into_iter().chain(removable) {
            let removed = self.stored.remove(&place.offset);
            assert!(removed.is_some(), "{place} was removed twice");
        }
    }

    /// The record of the same key that came next, ever.
    fn find_next(&self, record: &Record) -> Option<&Record> {
        let mut later = self
            .history
            .iter()
            .filter(|other| other.offset > record.offset);
        later.find(|other| other.key == record.key)
    }

    /// Whether a tombstone had served its time before `end` came.
    fn was_dropped_before(&self, tombstone: &Record, end: Offset) -> bool {
        let horizon = tombstone.append_time.0 + millis(RETENTION.delete_retention);
        let mut before = self.history.iter().filter(|other| other.offset < end);
        tombstone.value.is_none() && before.any(|other| other.append_time.0 >= horizon)
    }

    fn is_old(&self, record: &Record, age: Duration) -> bool {
        self.now.millis_since(record.append_time) >= millis(age)
    }

    fn check(&self) {
        for record in &self.history {
            let is_stored = self.stored.contains_key(&record.offset);
            match self.find_next(record) {
                Some(next) => {
                    let is_repeated = record.value.is_some() && next.value == record.value;
                    let may_go = is_repeated
                        || self.is_old(next, RETENTION.compaction_lag)
                        || self.was_dropped_before(record, next.offset);
                    assert_eq!(is_stored, !may_go, "{record:?} before {next:?}");
                }
                None => {
                    let may_go = self.was_dropped_before(record, Offset(i64::MAX));
                    assert_eq!(is_stored, !may_go, "{record:?}, the last of its key");
                }
            }
        }
    }

    /// What another process makes of what is stored.
    fn reloaded(&self) -> Ledger {
        let mut ledger = Ledger::new(&mk_contents());
        for record in self.stored.values() {
            ledger.apply(Place::of(TOPIC, record), record);
        }
        ledger
    }
}

proptest! {
    #[test]
    fn only_what_may_go_goes_and_all_of_it_goes(
        steps in prop::collection::vec((0..60_u8, 0..KEYS.len(), 0..3_u8), 1..60)
    ) {
        let mut model = Model {
            ledger: Ledger::new(&mk_contents()),
            stored: BTreeMap::new(),
            history: Vec::new(),
            now: Timestamp(1_000),
        };
        for step in steps {
            model.step(step);
            model.check();
            let reloaded = model.reloaded();
            for key in KEYS.map(str::as_bytes) {
                let last = |ledger: &Ledger| ledger.find_last(TOPIC, PARTITION, key);
                assert_eq!(last(&reloaded), last(&model.ledger));
            }
        }
    }
}
