//! `waypost dev` is killed (-9) again and again while instances are announced and withdrawn.
//!
//! What the log acknowledged is there after the next start; what it acknowledged as withdrawn is not.
//! What was under way may be either. Nothing here beats: an instance that was lost would stay lost.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use anyhow::ensure;
use rand::Rng as _;
use tokio::task::JoinSet;
use waypost_announcer::{GatewaySink, InstanceRecord, Sink as _};
use waypost_core::record::{Delivery, RecordKind};
use waypost_core::{
    Announcement, ClusterName, Headers, InstanceKey, InstanceUri, LifeId, Timestamp,
};
use waypost_testkit::waypost::{Server, ServerConfig};

use crate::Form;
use crate::figures::Figures;
use crate::look;

/// The cluster that is announced.
const CLUSTER: &str = "crash";
/// Writers at work when the process is killed: so many records may be under way.
const WRITERS: usize = 8;
/// A writer ends by itself after this many records, should the kill not come.
const RECORDS_MAX: u64 = 10_000;
/// Rounds for which an instance is kept before it is withdrawn: it must not expire by itself, with
/// the longest time-to-live, within so many restarts.
const KEPT_ROUNDS: usize = 5;
/// The longest time-to-live.
const TTL: Duration = Duration::from_secs(300);

/// What is known of the instances: of those in neither set nothing can be said.
#[derive(Debug, Default)]
struct Known {
    /// Acknowledged as announced, with the round in which they were.
    up: BTreeMap<String, usize>,
    /// Acknowledged as withdrawn.
    down: BTreeSet<String>,
}

/// What one writer has seen.
#[derive(Debug, Default)]
struct Seen {
    announced: Vec<String>,
    withdrawn: Vec<String>,
    in_doubt: Vec<String>,
}

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let config = ServerConfig::dev(&folder.path().join("data"));
    let mut known = Known::default();
    let (mut acknowledged, mut in_doubt, mut checked) = (0, 0, 0);
    let rounds = form.pick(200, 15);
    for round in 0..rounds {
        let dev = config.start().await?;
        checked += check(&dev, &known).await?;
        let seen = write_until_killed(dev, &known, round).await?;
        in_doubt += seen.iter().map(|seen| seen.in_doubt.len()).sum::<usize>();
        for seen in seen {
            acknowledged += seen.announced.len() + seen.withdrawn.len();
            known.take(seen, round);
        }
    }
    let dev = config.start().await?;
    checked += check(&dev, &known).await?;
    dev.stop().await?;

    figures.add("kills (-9)", rounds);
    figures.add("changes acknowledged", acknowledged);
    figures.add("changes under way at a kill", in_doubt);
    figures.add("facts checked after restarts", checked);
    figures.add("lost, or back from the dead", 0);
    ensure!(
        acknowledged > rounds,
        "too little was written for the kills to mean anything"
    );
    Ok(())
}

/// Compares what is served with what was acknowledged; gives how many facts were compared.
async fn check(dev: &Server, known: &Known) -> anyhow::Result<usize> {
    let served: BTreeSet<String> = look::uris(dev.admin(), CLUSTER)
        .await?
        .iter()
        .filter_map(|item| item["uri"].as_str().map(str::to_owned))
        .collect();
    let lost: Vec<_> = known
        .up
        .iter()
        .filter(|(uri, _)| !served.contains(*uri))
        .collect();
    let risen: Vec<_> = known.down.intersection(&served).collect();
    ensure!(
        lost.is_empty(),
        "acknowledged and lost (URI, round): {lost:?}"
    );
    ensure!(risen.is_empty(), "withdrawn and back: {risen:?}");
    Ok(known.up.len() + known.down.len())
}

/// Lets writers announce and withdraw, kills the process at a moment drawn by lot, and gives what
/// each writer had acknowledged until then.
async fn write_until_killed(dev: Server, known: &Known, round: usize) -> anyhow::Result<Vec<Seen>> {
    let gateway = dev.listen().to_string();
    let mut writers = JoinSet::new();
    for (writer, old) in (0..WRITERS).zip(known.old(round)) {
        let gateway = gateway.clone();
        writers.spawn(write(gateway, format!("{round}.{writer}"), old));
    }
    let wait = rand::rng().random_range(50..400);
    tokio::time::sleep(Duration::from_millis(wait)).await;
    dev.kill_9()?;
    Ok(writers.join_all().await)
}

/// Announces new instances and withdraws old ones until the gateway is gone.
async fn write(gateway: String, name: String, mut old: Vec<String>) -> Seen {
    let mut seen = Seen::default();
    let Ok(sink) = GatewaySink::new(&[gateway]) else {
        return seen;
    };
    for number in 0..RECORDS_MAX {
        let uri = format!("http://i{number}.{name}.crash.test:80");
        let (uri, kind) = match (number % 2 == 1).then(|| old.pop()).flatten() {
            Some(old) => (old, RecordKind::Withdraw),
            None => (uri, RecordKind::Announce),
        };
        let Ok(record) = mk_record(&uri, kind) else {
            return seen;
        };
        match sink.append(record).await {
            Ok(_) if kind == RecordKind::Withdraw => seen.withdrawn.push(uri),
            Ok(_) => seen.announced.push(uri),
            Err(_) => {
                seen.in_doubt.push(uri);
                return seen;
            }
        }
    }
    seen
}

/// The one announcement of an instance's life, or its withdrawal.
fn mk_record(uri: &str, kind: RecordKind) -> anyhow::Result<InstanceRecord> {
    let cluster = ClusterName::parse(CLUSTER)?;
    let key = InstanceKey {
        cluster: cluster.clone(),
        uri: InstanceUri::parse(uri)?,
    };
    let mut announcement = Announcement::new(cluster, key.uri.clone(), Timestamp(0));
    announcement.ttl = TTL;
    announcement.heartbeat = TTL / 3;
    let withdraws = kind == RecordKind::Withdraw;
    let headers = Headers {
        kind,
        id: Some(life(uri)),
        age_ms: Some(0),
        seq: Some(1 + u64::from(withdraws)),
        ..Headers::default()
    };
    let value = (!withdraws).then(|| waypost_proto::announcement::encode(&announcement));
    Ok(InstanceRecord {
        key,
        value,
        headers,
        delivery: Delivery::Change,
        wants_verdict: false,
    })
}

/// The identity of an instance's one life: the same whenever it is asked for.
fn life(uri: &str) -> LifeId {
    let mut hasher = std::hash::DefaultHasher::new();
    uri.hash(&mut hasher);
    LifeId(hasher.finish())
}

impl Known {
    fn take(&mut self, seen: Seen, round: usize) {
        for uri in seen.withdrawn {
            self.up.remove(&uri);
            self.down.insert(uri);
        }
        for uri in seen.in_doubt {
            self.up.remove(&uri);
        }
        self.up
            .extend(seen.announced.into_iter().map(|uri| (uri, round)));
    }

    /// The instances that are to be withdrawn now, dealt out to the writers. Each is in doubt until
    /// its withdrawal is acknowledged or the writer did not get to it.
    fn old(&self, round: usize) -> Vec<Vec<String>> {
        let mut hands = vec![Vec::new(); WRITERS];
        let old = self
            .up
            .iter()
            .filter(|(_, announced)| *announced + KEPT_ROUNDS <= round);
        for (index, (uri, _)) in old.enumerate() {
            let hand = index % hands.len();
            hands[hand].push(uri.clone());
        }
        hands
    }
}
