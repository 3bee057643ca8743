//! All announcers of a cluster, or of a fleet, are killed at once: what leaves, what is held and still
//! served, what comes back with its beats, and what an operator's release lets go.

mod crowd;
mod watcher;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, cli};

use crate::Form;
use crate::clock::now;
use crate::figures::Figures;
use crate::fleet::{HEARTBEAT, TTL};
use crate::look;
use watcher::Watcher;

pub use crowd::announce;
use crowd::{Crowd, Plan};

/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(60);

/// By then a new Observer stands at every end, and has heard everybody once more.
const FOLLOWED: Duration = HEARTBEAT
    .saturating_mul(2)
    .saturating_add(Duration::from_secs(4));
/// How soon after their deaths those leave that may: a time-to-live after the last beat, a tick, and
/// the way there and back, on a machine that does other things.
const LEAVES_WITHIN: Duration = TTL.saturating_add(HEARTBEAT).saturating_add(SOON);
/// How soon what was released is gone.
const RELEASED_WITHIN: Duration = Duration::from_secs(20);

/// What falls silent.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    plan: Plan,
    /// How many of them may leave.
    cap: usize,
    /// For how long an expire counts.
    window: Duration,
}

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let window = form.pick(Duration::from_secs(60), Duration::from_secs(6));
    let cluster = Case {
        name: "cluster",
        plan: Plan {
            instances: 100,
            per_cluster: 100,
        },
        cap: 20,
        window,
    };
    let fleet = Case {
        name: "fleet",
        plan: Plan {
            instances: form.pick(1_000, 250),
            per_cluster: 5,
        },
        cap: form.pick(50, 12),
        window,
    };
    figures.add("window of the cap, s", window.as_secs());
    let (mut of_cluster, mut of_fleet) = (Figures::default(), Figures::default());
    let done = tokio::join!(play(cluster, &mut of_cluster), play(fleet, &mut of_fleet));
    figures.extend(of_cluster);
    figures.extend(of_fleet);
    done.0.context("a cluster falls silent")?;
    done.1.context("a fleet falls silent")
}

async fn play(case: Case, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let window = format!("{}s", case.window.as_secs());
    let config = ServerConfig::dev(&folder.path().join("data"));
    let dev = config.args(&["--expiry-window", &window]).start().await?;
    let all = case.plan.instances;
    figures.step(&format!("{}: {all} instances are announced", case.name));
    let crowd = Crowd::start(case.plan, &dev).await?;
    served(&dev, "all are served", SOON, |served| served == all).await?;
    let watcher = Watcher::start(&dev, case.plan).await?;
    watcher.reaches(all, SOON).await?;

    // Who has just started did not follow what was announced before, and takes the cap for hit: all
    // beat once more first.
    sleep(FOLLOWED).await;
    let left = fall_silent(case, figures, &dev, &watcher, crowd).await?;
    hold(case, figures, &dev, &watcher, left).await?;
    let crowd = come_back(case, figures, &dev, &watcher).await?;
    sleep(case.window).await;
    let left = fall_silent(case, figures, &dev, &watcher, crowd).await?;
    release(case, figures, &dev, &watcher, all - left).await
}

/// Kills all announcers; at most as many instances leave as the cap says. Returns how many did.
async fn fall_silent(
    case: Case,
    figures: &mut Figures,
    dev: &Server,
    watcher: &Watcher,
    crowd: Crowd,
) -> anyhow::Result<usize> {
    let all = case.plan.instances;
    figures.step(&format!("{}: every announcer is killed (-9)", case.name));
    let killed = now();
    crowd.kill_9()?;
    let status = eventually("it holds", LEAVES_WITHIN, || async {
        let (code, status) = status(dev).await?;
        let held = count(&status["counts"]["held_instances"]);
        let is_all = held > 0 && held == count(&status["counts"]["instances"]);
        ensure!(code == 3 && is_all, "exit {code}: {status}");
        Ok(status)
    })
    .await?;
    let held = count(&status["counts"]["held_instances"]);
    let left = all.saturating_sub(held);
    figures.add(
        format!("{}: killed, held after, s", case.name),
        format_args!("{:.1}", now() - killed),
    );
    figures.add_at_most(&format!("{}: left, of {all}", case.name), left, case.cap)?;
    ensure!(left > 0, "{}: nobody left", case.name);
    watcher.reaches(held, SOON).await?;
    Ok(left)
}

/// What is held stays, in no later window does more of it leave; clients have it, new ones too, and
/// people see it.
async fn hold(
    case: Case,
    figures: &mut Figures,
    dev: &Server,
    watcher: &Watcher,
    left: usize,
) -> anyhow::Result<()> {
    let held = case.plan.instances - left;
    figures.step(&format!("{}: {held} are held", case.name));
    let responses = watcher.responses();
    let watched = 2 * case.window + TTL;
    let until = Instant::now() + watched;
    while Instant::now() < until {
        let (code, status) = status(dev).await?;
        let counts = &status["counts"];
        let served = (
            count(&counts["instances"]),
            count(&counts["held_instances"]),
        );
        ensure!(code == 3 && served == (held, held), "exit {code}: {status}");
        sleep(Duration::from_secs(1)).await;
    }
    figures.add(
        format!("{}: held and watched, s", case.name),
        watched.as_secs(),
    );
    figures.add_at_most(
        &format!("{}: responses to a client meanwhile", case.name),
        watcher.responses() - responses,
        0,
    )?;
    let new = Watcher::start(dev, case.plan).await?;
    new.reaches(held, SOON).await?;

    let (_, status) = status(dev).await?;
    let is_fleet = case.plan.per_cluster < case.plan.instances;
    let scopes = status["holding"].as_array().map_or(&[][..], Vec::as_slice);
    ensure!(
        scopes.len() == 1 && scopes[0]["cluster"].is_null() == is_fleet,
        "who holds? {status}"
    );
    let mut shown = 0;
    for cluster in case.plan.clusters() {
        let uris = look::uris(dev.admin(), &cluster).await?;
        shown += uris.iter().filter(|uri| is_held(uri)).count();
    }
    ensure!(shown == held, "`get uris` shows {shown} as held, of {held}");
    let cluster = case.plan.clusters().next().context("a cluster")?;
    let uris = look::uris(dev.admin(), &cluster).await?;
    let uri = uris.first().and_then(|item| item["uri"].as_str());
    let described = dev
        .cli(&["describe", "uri", &cluster, uri.context("an instance")?])
        .await?;
    ensure!(
        described.code() == 0 && described.stdout.contains("held"),
        "describe: {}{}",
        described.stdout,
        described.stderr
    );
    figures.add(
        format!(
            "{}: held, served to clients old and new, and shown",
            case.name
        ),
        held,
    );
    Ok(())
}

/// Every instance is announced again, by new processes.
async fn come_back(
    case: Case,
    figures: &mut Figures,
    dev: &Server,
    watcher: &Watcher,
) -> anyhow::Result<Crowd> {
    let all = case.plan.instances;
    figures.step(&format!("{}: the announcers are back", case.name));
    let began = now();
    let crowd = Crowd::start(case.plan, dev).await?;
    eventually("nothing is held", SOON, || async {
        let (code, status) = status(dev).await?;
        let counts = &status["counts"];
        let served = (
            count(&counts["instances"]),
            count(&counts["held_instances"]),
        );
        ensure!(code == 0 && served == (all, 0), "exit {code}: {status}");
        Ok(())
    })
    .await?;
    watcher.reaches(all, SOON).await?;
    figures.add(
        format!("{}: whole again after, s", case.name),
        format_args!("{:.1}", now() - began),
    );
    Ok(crowd)
}

/// An operator says that they are dead: of one cluster, then of all.
async fn release(
    case: Case,
    figures: &mut Figures,
    dev: &Server,
    watcher: &Watcher,
    held: usize,
) -> anyhow::Result<()> {
    let clusters: Vec<_> = case.plan.clusters().collect();
    let one = clusters.first().context("a cluster")?;
    let of_one = look::uris(dev.admin(), one).await?.len();
    figures.step(&format!(
        "{}: {of_one} instances of {one} are released",
        case.name
    ));
    let began = now();
    say(dev, &["release", one, "--reason", "they are dead"]).await?;
    let rest = held - of_one;
    served(dev, "one cluster leaves", SOON, |served| served == rest).await?;
    if rest > 0 {
        // Nothing else goes with it.
        sleep(case.window + TTL).await;
        served(dev, "the others stay", SOON, |served| served == rest).await?;
        figures.step(&format!("{}: all are released", case.name));
    }
    let began = if rest > 0 { now() } else { began };
    say(dev, &["release", "--all", "--reason", "they are dead"]).await?;
    served(dev, "the rest leaves", SOON, |served| served == 0).await?;
    watcher.reaches(0, SOON).await?;
    figures.add_within(
        &format!("{}: released, gone after", case.name),
        Duration::from_secs_f64((now() - began).max(0.0)),
        RELEASED_WITHIN,
    )?;
    let (code, status) = status(dev).await?;
    ensure!(code == 0, "nothing is held: exit {code}: {status}");
    Ok(())
}

/// A command of an operator.
async fn say(dev: &Server, args: &[&str]) -> anyhow::Result<()> {
    let to = dev.listen().to_string();
    let done = cli(&[args, &["--to", &to]].concat()).await?;
    ensure!(
        done.code() == 0,
        "waypost {args:?} exits {}: {}{}",
        done.code(),
        done.stdout,
        done.stderr
    );
    Ok(())
}

/// Waits until so many instances are served.
async fn served(
    dev: &Server,
    what: &str,
    within: Duration,
    wanted: impl Fn(usize) -> bool,
) -> anyhow::Result<()> {
    eventually(what, within, || async {
        let (_, status) = status(dev).await?;
        let served = count(&status["counts"]["instances"]);
        ensure!(wanted(served), "{served} are served");
        Ok(())
    })
    .await
}

/// `waypost status`: its exit code, and what it says.
async fn status(dev: &Server) -> anyhow::Result<(i32, Value)> {
    let done = dev.cli(&["status", "-o", "json"]).await?;
    let status = serde_json::from_str(&done.stdout)
        .with_context(|| format!("status: {}{}", done.stdout, done.stderr))?;
    Ok((done.code(), status))
}

fn count(value: &Value) -> usize {
    value
        .as_u64()
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0)
}

fn is_held(uri: &Value) -> bool {
    let sources = uri["sources"].as_array();
    sources.is_some_and(|sources| sources.iter().any(|source| source["log"]["held"] == true))
}
