//! The log in memory: what only it can do.

use std::time::Duration;

use waypost_core::port::{AnnouncementLog, ReadEvent};
use waypost_core::record::{Delivery, Headers, NewRecord, Topic};
use waypost_core::{Offset, PartitionId, Timestamp};
use waypost_log::{ManualClock, MemoryLog};

fn mk_record(key: &str, value: Option<&str>) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: key.to_owned().into(),
        value: value.map(|value| value.to_owned().into()),
        headers: Headers::default(),
        delivery: Delivery::Change,
    }
}

#[tokio::test]
async fn what_is_appended_is_read_at_the_clock_s_time() {
    let clock = ManualClock::new(Timestamp(1_000));
    let log = MemoryLog::new(1, clock.clone());
    clock.advance(Duration::from_secs(1));
    let appended = log
        .append(mk_record("a", Some("1")))
        .await
        .expect("takes it");
    assert_eq!(appended.append_time, Some(Timestamp(2_000)));
    let mut reader = log.read(Topic::Announcements, &[]).await.expect("opens");
    assert_eq!(reader.next().await, Ok(ReadEvent::Partitions(1)));
    let bounds = ReadEvent::Bounds {
        partition: PartitionId(0),
        start: Offset(0),
        end: Offset(1),
    };
    assert_eq!(reader.next().await, Ok(bounds));
    let Ok(ReadEvent::Records(records)) = reader.next().await else {
        panic!("no records");
    };
    assert_eq!(records, log.records(Topic::Announcements));
}
