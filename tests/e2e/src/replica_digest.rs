//! Observers of one log make the same of it: five of them, that started at other times, from another
//! part of the log, or stood still for a while, agree under churn; and one that was lied to about one
//! instance is found out, with that instance's name.

mod churn;
mod proxy;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use waypost_announcer::{AnnouncerPool, PartitionWeights};
use waypost_core::port::{AnnouncementLog as _, ReadEvent};
use waypost_core::{InstanceKey, Topic};
use waypost_log::kafka::{KafkaLog, KafkaSettings};
use waypost_testkit::kafka::{KafkaAdmin, KafkaBroker};
use waypost_testkit::process::Signal;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, cli};

use crate::Form;
use crate::figures::Figures;
use crate::fleet::{announcement, pool_to_kafka};
use churn::Churn;
use proxy::LyingProxy;

const PREFIX: &str = "waypost";
/// The instance that one Observer is lied to about.
const TARGET: &str = "grpc://10.0.0.9:4321";
/// How soon the planted difference is named.
const NAMED_WITHIN: Duration = Duration::from_secs(60);
/// How soon an Observer that has just started, or goes on after a pause, can be compared.
const COMPARED_WITHIN: Duration = Duration::from_secs(60);
/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(60);
/// Three times the time-to-live of the instances, as the rules of the log ask.
const COMPACTION_LAG_MS: &str = "30000";

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    figures.step("Apache Kafka starts with a cleaner that wakes every second, topics are made");
    let kafka = KafkaBroker::start_with(&[("log.cleaner.backoff.ms", "1000")]).await?;
    let bootstrap = kafka.bootstrap();
    let settings = create_topics(&bootstrap).await?;
    let broker: SocketAddr = bootstrap.parse()?;
    let proxy = LyingProxy::start(broker).await?;

    figures.step("three Observers start: two steady ones and one that will be paused");
    let steady = observer(&bootstrap).start().await?;
    let other = observer(&bootstrap).start().await?;
    let paused = observer(&proxy.address().to_string()).start().await?;

    let (instances, agents) = form.pick((400, 12), (60, 4));
    figures.step(&format!(
        "{instances} instances and {agents} agents are announced, and change from now on"
    ));
    let pool = pool_to_kafka(&bootstrap, PREFIX)?;
    let churn = Churn::start(&pool, (&bootstrap, PREFIX), instances, agents).await?;
    let began = Instant::now();
    let (stop_tx, stop_rx) = watch::channel(false);
    let churning = tokio::spawn(churn.run(stop_rx));
    let mut compared = Compared::default();

    let phase = form.pick(Duration::from_secs(150), Duration::from_secs(12));
    compared
        .keep_equal(&steady, &[&other, &paused], phase)
        .await?;
    figures.step("a late one starts; one is paused (SIGSTOP) while the log is compacted");
    let late = observer(&bootstrap).start().await?;
    paused.process.signal(Signal::STOP)?;
    let others = [&other, &late];
    let compacting = compact(&bootstrap, &settings);
    let (left, ()) = tokio::try_join!(compacting, compared.keep_equal(&steady, &others, phase))?;
    paused.process.signal(Signal::CONT)?;
    figures.step("it goes on, and one starts over the compacted log");
    let from_compacted = observer(&bootstrap).start().await?;
    let others = [&other, &paused, &late, &from_compacted];
    let rest = (phase * 4).saturating_sub(began.elapsed());
    compared.keep_equal(&steady, &others, rest).await?;
    compared.until_equal(&steady, &others).await?;

    figures.step("the Observer that was paused is lied to about one instance");
    let named = plant(&pool, &proxy, &steady, (&paused, &others)).await?;
    let took = began.elapsed();
    stop_tx.send(true)?;
    let churned = churning.await??;

    figures.add("Observers", others.len() + 1);
    figures.add("seconds of churn", took.as_secs());
    figures.add(
        "weights changed, withdrawals, announcements after one",
        format_args!(
            "{}, {}, {}",
            churned.changed, churned.withdrawn, churned.came_back
        ),
    );
    figures.add(
        "agents killed (-9), started again",
        format_args!("{}, {}", churned.killed, churned.restarted),
    );
    figures.add("records left where the last one started, of offsets", left);
    figures.add("comparisons, all equal", compared.equal);
    figures.add("falsified records", proxy.lies());
    figures.add_within("planted difference named", named, NAMED_WITHIN)
}

fn observer(kafka: &str) -> ServerConfig {
    ServerConfig::observer(kafka, PREFIX).args(&["--newborn-grace", "1s"])
}

/// Makes the topics; gives the settings of the announcements.
async fn create_topics(bootstrap: &str) -> anyhow::Result<Vec<(String, String)>> {
    let args = ["topics", "create", "--kafka", bootstrap, "--topic-prefix"];
    let more = [PREFIX, "--development", "--partitions", "4", "-o", "json"];
    let done = cli(&[&args[..], &more].concat()).await?;
    ensure!(done.code() == 0, "topics create: {}", done.stderr);
    let made: Value = serde_json::from_str(&done.stdout)?;
    let topics = made.as_array().context("a list")?;
    let name = format!("{PREFIX}.announcements");
    let topic = topics.iter().find(|topic| topic["topic"] == name.as_str());
    let settings = topic.context("no announcements")?["settings"].as_array();
    let pair = |setting: &Value| {
        let text = |name: &str| setting[name].as_str().map(str::to_owned);
        Some((text("name")?, text("value")?))
    };
    Ok(settings.into_iter().flatten().filter_map(pair).collect())
}

/// Lets the cleaner at everything that is older than the rules allow, until most of the log is gone;
/// then the settings are as they were. Says what is left.
async fn compact(bootstrap: &str, settings: &[(String, String)]) -> anyhow::Result<String> {
    let admin = KafkaAdmin::new(bootstrap)?;
    let topic = format!("{PREFIX}.announcements");
    let quick = BTreeMap::from([
        ("min.compaction.lag.ms", COMPACTION_LAG_MS),
        ("segment.ms", "2000"),
        ("min.cleanable.dirty.ratio", "0.01"),
    ]);
    let standard: Vec<_> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let changed: Vec<_> = standard
        .iter()
        .map(|(name, value)| (*name, *quick.get(name).unwrap_or(value)))
        .collect();
    admin.set_settings(&topic, &changed).await?;
    let log = KafkaLog::open(KafkaSettings::new(bootstrap, PREFIX))?;
    let (records, offsets) = eventually("the log is compacted", SOON * 3, || async {
        let (records, offsets) = count(&log).await?;
        ensure!(records * 2 < offsets, "{records} records of {offsets}");
        Ok((records, offsets))
    })
    .await?;
    admin.set_settings(&topic, &standard).await?;
    Ok(format!("{records} of {offsets}"))
}

/// Records that can be read, and offsets that were given out.
async fn count(log: &KafkaLog) -> anyhow::Result<(i64, i64)> {
    let mut reader = log.read(Topic::Announcements, &[]).await?;
    let (mut partitions, mut records, mut ends) = (None, 0, BTreeMap::new());
    loop {
        match tokio::time::timeout(SOON, reader.next()).await?? {
            ReadEvent::Partitions(count) => partitions = Some(usize::try_from(count)?),
            ReadEvent::Records(batch) => records += i64::try_from(batch.len())?,
            ReadEvent::CaughtUp {
                partition,
                position,
            } => {
                ends.entry(partition).or_insert(position.0);
            }
            _ => {}
        }
        if Some(ends.len()) == partitions {
            return Ok((records, ends.values().sum()));
        }
    }
}

/// Comparisons by `waypost status --compare`.
#[derive(Debug, Default)]
struct Compared {
    equal: usize,
}

impl Compared {
    /// Compares again and again for as long as `duration`; the first time may take a while.
    async fn keep_equal(
        &mut self,
        with: &Server,
        others: &[&Server],
        duration: Duration,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + duration;
        let mut pace = tokio::time::interval(Duration::from_secs(1));
        while Instant::now() < end {
            pace.tick().await;
            self.until_equal(with, others).await?;
        }
        Ok(())
    }

    /// Waits until every one can be compared, and fails if one differs.
    async fn until_equal(&mut self, with: &Server, others: &[&Server]) -> anyhow::Result<()> {
        let all = eventually("the Observers can be compared", COMPARED_WITHIN, || async {
            let comparison = compare(with, others).await?;
            let verdicts: Vec<_> = others_of(&comparison)
                .map(|o| o["verdict"].clone())
                .collect();
            let different = verdicts.iter().any(|verdict| verdict == "different");
            let equal = verdicts.iter().all(|verdict| verdict == "equal");
            ensure!(different || equal, "{comparison:#}");
            Ok((!different).then_some(()).ok_or(comparison))
        })
        .await?;
        if let Err(comparison) = all {
            anyhow::bail!("Observers differ: {comparison:#}");
        }
        self.equal += others.len();
        Ok(())
    }
}

async fn compare(with: &Server, others: &[&Server]) -> anyhow::Result<Value> {
    let others: Vec<String> = others.iter().map(|o| o.admin().to_string()).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let args = [&["status", "-o", "json", "--compare"][..], &others].concat();
    let done = with.cli(&args).await?;
    let comparison: Value = serde_json::from_str(&done.stdout)
        .with_context(|| format!("no JSON: {}{}", done.stdout, done.stderr))?;
    let is_equal = others_of(&comparison).all(|other| other["verdict"] == "equal");
    ensure!(
        done.code() == i32::from(!is_equal),
        "exit code {} for {comparison:#}",
        done.code()
    );
    Ok(comparison)
}

fn others_of(comparison: &Value) -> impl Iterator<Item = &Value> {
    comparison["others"].as_array().into_iter().flatten()
}

/// Lies to one Observer about one instance, changes that instance, and waits until the comparison names
/// both; gives how long that took.
async fn plant(
    pool: &AnnouncerPool,
    proxy: &LyingProxy,
    steady: &Server,
    (victim, others): (&Server, &[&Server]),
) -> anyhow::Result<Duration> {
    let announcement = announcement(TARGET)?;
    let key = InstanceKey {
        cluster: announcement.cluster.clone(),
        uri: announcement.uri.clone(),
    };
    let target = pool.add(announcement)?;
    target.mark_up();
    target.settled().await?;
    let mut compared = Compared::default();
    compared.until_equal(steady, others).await?;
    proxy.falsify(&key.to_record_key());
    let began = Instant::now();
    target.change_weight(PartitionWeights::from([(0, 7.0)]))?;
    target.settled().await?;
    let (difference, rest) = eventually("the difference is named", NAMED_WITHIN, || async {
        let comparison = compare(steady, others).await?;
        let name = victim.admin().to_string();
        let mut rest = Vec::new();
        let mut found = None;
        for other in others_of(&comparison) {
            if other["server"] == name.as_str() {
                found = Some(other["first_difference"].clone()).filter(|d| !d.is_null());
            } else {
                rest.push(other["verdict"].clone());
            }
        }
        Ok((found.with_context(|| format!("{comparison:#}"))?, rest))
    })
    .await?;
    let took = began.elapsed();
    ensure!(
        difference["uri"] == TARGET && difference["what"] == "content",
        "another difference: {difference:#}"
    );
    ensure!(
        rest.iter().all(|verdict| verdict == "equal"),
        "others that were not lied to: {rest:?}"
    );
    Ok(took)
}
