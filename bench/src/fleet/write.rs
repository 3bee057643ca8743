//! A whole fleet into a log.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use waypost_core::AnnouncementLog;
use waypost_core::limits::{HEARTBEAT_DEFAULT, TTL_DEFAULT};
use waypost_core::record::Delivery;
use waypost_log::kafka::{KafkaLog, KafkaSettings};
use waypost_log::{EmbeddedLog, EmbeddedSettings};

use super::activity::{Activity, nth};
use super::work::{Pace, work};
use super::{Fleet, FleetSpec, Shape};

/// Records that wait for their acknowledgement at once: four commits of the embedded log, and a fraction
/// of what a producer of Kafka queues.
const IN_FLIGHT_MAX: usize = 4_096;

/// The prefix of the topics: the default of every command of `waypost`.
const TOPIC_PREFIX: &str = "waypost";

/// A fleet, and the log that it goes to.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// How many instances.
    #[arg(long)]
    instances: u32,
    /// In how many clusters.
    #[arg(long)]
    clusters: u32,
    /// How often each says that it will announce itself again, in milliseconds.
    #[arg(long, default_value_t = millis(HEARTBEAT_DEFAULT))]
    heartbeat_ms: u64,
    /// Their time-to-live, in milliseconds.
    #[arg(long, default_value_t = millis(TTL_DEFAULT))]
    ttl_ms: u64,
    #[command(flatten)]
    to: To,
    /// For how many seconds it is at work afterwards: heartbeats, and what the next two say.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Clusters a second in which something changes.
    #[arg(long, default_value_t = 0.0)]
    changes: f64,
    /// Deploy waves a second.
    #[arg(long, default_value_t = 0.0)]
    waves: f64,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct To {
    /// Directory of an embedded log, made if it is not there.
    #[arg(long, value_name = "DIR")]
    embedded: Option<PathBuf>,
    /// Brokers of a Kafka whose topics `waypost topics create` has made.
    #[arg(long, value_name = "HOST:PORT")]
    kafka: Option<String>,
}

/// Writes the fleet, says how many bytes an instance takes, and lets it work.
pub(crate) async fn run(args: FleetArgs) -> anyhow::Result<()> {
    match (&args.to.embedded, &args.to.kafka) {
        (Some(directory), _) => {
            let log = EmbeddedLog::open(directory, EmbeddedSettings::standard()).await?;
            let done = run_on(&args, &log).await;
            log.close().await;
            done
        }
        (None, brokers) => {
            let brokers = brokers.as_deref().unwrap_or_default();
            let log = KafkaLog::open(KafkaSettings::new(brokers, TOPIC_PREFIX))?;
            run_on(&args, &log).await
        }
    }
}

async fn run_on(args: &FleetArgs, log: &dyn AnnouncementLog) -> anyhow::Result<()> {
    let fleet = Fleet::new(FleetSpec {
        clusters: args.clusters,
        shape: Shape::Tailed {
            instances: args.instances,
        },
        heartbeat: Duration::from_millis(args.heartbeat_ms),
        ttl: Duration::from_millis(args.ttl_ms),
    });
    let bytes = announce_all(&fleet, log).await?;
    println!(
        "{} instances in {} clusters, {} bytes of key and value an instance",
        fleet.slot_count(),
        fleet.cluster_count(),
        bytes / u64::from(fleet.slot_count().max(1))
    );
    if args.seconds > 0 {
        let pace = Pace {
            beats: fleet.beats_per_second(),
            changes: args.changes,
            waves: args.waves,
        };
        let time = Duration::from_secs(args.seconds);
        let worked = work(&mut Activity::new(fleet), log, pace, time).await?;
        println!("{worked:?}");
    }
    Ok(())
}

/// Announces every slot once; returns when the log has all of it. Gives the bytes of keys and values.
pub(crate) async fn announce_all(fleet: &Fleet, log: &dyn AnnouncementLog) -> anyhow::Result<u64> {
    append_all(fleet, log, Delivery::Change).await
}

/// One heartbeat of every slot, as fast as the log takes them.
pub(crate) async fn beat_all(fleet: &Fleet, log: &dyn AnnouncementLog) -> anyhow::Result<u64> {
    append_all(fleet, log, Delivery::Heartbeat).await
}

async fn append_all(
    fleet: &Fleet,
    log: &dyn AnnouncementLog,
    delivery: Delivery,
) -> anyhow::Result<u64> {
    let appends = stream::iter(0..fleet.slot_count()).map(async |n| {
        let record = fleet.announce(nth(n.into(), fleet.slot_count()), delivery)?;
        let bytes = record.key.len() + record.value.as_ref().map_or(0, bytes::Bytes::len);
        log.append(record).await?;
        anyhow::Ok(bytes as u64)
    });
    let appends = appends.buffer_unordered(IN_FLIGHT_MAX);
    appends
        .try_fold(0, async |sum, bytes| Ok(sum + bytes))
        .await
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use waypost_core::{ReadEvent, Topic};

    use super::*;

    #[tokio::test]
    async fn an_embedded_log_holds_every_instance_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let args = FleetArgs {
            instances: 500,
            clusters: 20,
            heartbeat_ms: 10_000,
            ttl_ms: 30_000,
            to: To {
                embedded: Some(folder.path().to_owned()),
                kafka: None,
            },
            seconds: 0,
            changes: 0.0,
            waves: 0.0,
        };
        run(args).await.unwrap();
        let log = EmbeddedLog::open(folder.path(), EmbeddedSettings::standard());
        let log = log.await.unwrap();
        let mut reader = log.read(Topic::Announcements, &[]).await.unwrap();
        let mut announced = 0;
        while announced < 500 {
            if let ReadEvent::Records(records) = reader.next().await.unwrap() {
                let announcements = records
                    .iter()
                    .filter(|record| record.headers.as_ref().unwrap().seq.is_some());
                announced += announcements.count();
            }
        }
        assert_eq!(announced, 500);
    }
}
