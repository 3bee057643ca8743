//! Which log a topic is: a record in its partition 0.

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};
use waypost_core::partition::PartitionId;
use waypost_core::port::{AnnouncementLog as _, LogError, LogReader, ReadEvent};
use waypost_core::record::{
    Delivery, Headers, IDENTITY_KEY, LogIdentity, NewRecord, Offset, Record, RecordKind, Topic,
};

use crate::kafka::KafkaLog;
use crate::kafka::limits::{ANSWER_MAX, CREATE_MAX, RETRY_INTERVAL};

/// The identity that stands in the topic; where there is none, one is written.
///
/// A topic that existed is read to its end first: a creation may have been cut short before its
/// record was written, and a log must not get a second identity for no reason. A topic that is new
/// is not known to every broker at once, nor has each partition a leader, so this is tried for a
/// while.
pub(super) async fn establish(log: &KafkaLog, topic: Topic) -> Result<LogIdentity, LogError> {
    let give_up = Instant::now() + CREATE_MAX;
    loop {
        let tried = match timeout(ANSWER_MAX, try_establish(log, topic)).await {
            Ok(tried) => tried,
            Err(_) => Err(LogError::Unavailable(format!(
                "topic {} could not be read to its end; run the command again",
                log.settings().topic_name(topic)
            ))),
        };
        match tried {
            Err(LogError::Unavailable(_) | LogError::Misconfigured(_))
                if Instant::now() < give_up =>
            {
                sleep(RETRY_INTERVAL / 4).await;
            }
            done => return done,
        }
    }
}

async fn try_establish(log: &KafkaLog, topic: Topic) -> Result<LogIdentity, LogError> {
    if let Some(identity) = find(log.read(topic, &[]).await?.as_mut()).await? {
        return Ok(identity);
    }
    let identity = LogIdentity(rand::random());
    let record = NewRecord {
        topic,
        partition: Some(PartitionId(0)),
        key: Bytes::from_static(IDENTITY_KEY),
        // A null would be compacted away.
        value: Some(Bytes::from(identity.to_string())),
        headers: Headers {
            kind: RecordKind::Identity,
            log: Some(identity),
            ..Headers::default()
        },
        delivery: Delivery::Change,
    };
    log.append(record).await?;
    Ok(identity)
}

/// Reads partition 0 to its end; of several identities the last stands.
async fn find(reader: &mut dyn LogReader) -> Result<Option<LogIdentity>, LogError> {
    let mut found = None;
    let mut end: Option<Offset> = None;
    loop {
        match reader.next().await? {
            ReadEvent::Records(records) => {
                found = records.iter().filter_map(identity_of).next_back().or(found);
            }
            ReadEvent::Bounds {
                partition: PartitionId(0),
                end: first,
                ..
            } => {
                end.get_or_insert(first);
            }
            ReadEvent::CaughtUp {
                partition: PartitionId(0),
                position,
            } if end.is_some_and(|end| position >= end) => {
                return Ok(found);
            }
            ReadEvent::Unavailable(why) => return Err(LogError::Unavailable(why)),
            _ => {}
        }
    }
}

fn identity_of(record: &Record) -> Option<LogIdentity> {
    let is_identity =
        record.partition == PartitionId(0) && record.key.as_deref() == Some(IDENTITY_KEY);
    record.headers.as_ref().ok().filter(|_| is_identity)?.log
}
