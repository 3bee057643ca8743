//! Measurements: builds the servers under test and the load, then has `waypost-bench run` compare
//! them. Figures worth keeping go into `bench/RESULTS.md` by hand, with the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo::{cargo, target_dir};
use crate::{parts, sh};

/// What to measure, and against whom.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Scenarios, as `--list` names them; all by default.
    scenarios: Vec<String>,
    /// Say what the scenarios are.
    #[arg(long)]
    list: bool,
    /// Compare with another server in the same run: `go-control-plane`, or `diderot=DIR` with a
    /// checkout of github.com/linkedin/diderot. May be repeated.
    #[arg(long = "peer", value_name = "PEER")]
    peers: Vec<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Everything in small, unoptimised: shows that it runs, measures nothing.
    #[arg(long)]
    short: bool,
    /// Compare ours on one core with ours on so many.
    #[arg(long, value_name = "COUNT", conflicts_with = "peers")]
    server_cores: Option<usize>,
    /// Runs of each scenario and server.
    #[arg(long)]
    runs: Option<usize>,
    /// How long the headline runs, in seconds, where there are no ten minutes.
    #[arg(long)]
    seconds: Option<u64>,
}

/// Builds what is needed and runs scenarios; fails where a judged bar is missed.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let packages = ["build", "--locked", "-p", "waypost", "-p", "waypost-bench"];
    let bins: &[&str] = if args.short {
        &["--bins"]
    } else {
        &["--bins", "--release"]
    };
    sh::run_unannounced(&mut cargo(&[&packages[..], bins].concat()))?;
    let mut command = program(args.short)?;
    command.args(&args.scenarios);
    for peer in &args.peers {
        let built = build_peer(peer)?;
        command.arg("--peer").arg(built);
    }
    for (flag, is_set) in [
        ("--list", args.list),
        ("--json", args.json),
        ("--short", args.short),
    ] {
        command.args(is_set.then_some(flag));
    }
    let counts = [
        (
            "--server-cores",
            args.server_cores.map(|count| count as u64),
        ),
        ("--runs", args.runs.map(|runs| runs as u64)),
        ("--seconds", args.seconds),
    ];
    for (flag, count) in counts {
        if let Some(count) = count {
            command.args([flag, &count.to_string()]);
        }
    }
    sh::run_unannounced(&mut command)
}

/// The cost curves in small.
pub(crate) fn short_curves() -> anyhow::Result<Command> {
    let mut command = Command::new(target_dir("debug")?.join("waypost-bench"));
    command.args(["curves", "--short"]);
    Ok(command)
}

/// The short form of one scenario; all is built.
pub(crate) fn short(scenario: &str) -> anyhow::Result<Command> {
    let mut command = program(true)?;
    command.args([scenario, "--short"]);
    Ok(command)
}

/// The same beside a peer, which is built.
pub(crate) fn short_against(scenario: &str, peer: &str) -> anyhow::Result<Command> {
    let mut command = short(scenario)?;
    command.arg("--peer").arg(build_peer(peer)?);
    Ok(command)
}

/// The same on one core and on so many.
pub(crate) fn short_on_cores(scenario: &str, count: usize) -> anyhow::Result<Command> {
    let mut command = short(scenario)?;
    command.args(["--server-cores", &count.to_string()]);
    Ok(command)
}

/// The names of all scenarios.
pub(crate) fn names() -> anyhow::Result<Vec<String>> {
    let list = sh::stdout_of(program(true)?.arg("--list"))?;
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

/// The program that measures; built before.
fn program(is_short: bool) -> anyhow::Result<Command> {
    let profile = if is_short { "debug" } else { "release" };
    let mut command = Command::new(target_dir(profile)?.join("waypost-bench"));
    command.arg("run");
    Ok(command)
}

/// Builds a peer; gives `NAME=PROGRAM`.
fn build_peer(peer: &str) -> anyhow::Result<String> {
    let (name, checkout) = match peer.split_once('=') {
        Some((name, checkout)) => (name, Some(Path::new(checkout))),
        None => (peer, None),
    };
    let sources = sh::root().join("bench/peers");
    let (source, modules) = match (name, checkout) {
        ("go-control-plane", None) => (sources.join(name), "-mod=readonly"),
        ("diderot", Some(checkout)) => (with_checkout(&sources, checkout)?, "-mod=mod"),
        _ => bail!("no peer {peer:?}: go-control-plane, or diderot=DIR"),
    };
    let program = target_dir("peers")?.join(name);
    let mut go = Command::new(parts::go()?);
    go.arg("-C").arg(&source);
    go.args(["build", modules, "-o"]).arg(&program).arg(".");
    // Its modules come over a network the first time.
    parts::with_tries(&mut go)?;
    Ok(format!("{name}={}", program.display()))
}

/// A folder with Diderot's program, whose module is taken from a checkout; fleet and updater are those of
/// go-control-plane's.
fn with_checkout(sources: &Path, checkout: &Path) -> anyhow::Result<PathBuf> {
    const MODULE: &str = "github.com/linkedin/diderot";
    let checkout = checkout
        .canonicalize()
        .with_context(|| format!("{}", checkout.display()))?;
    let folder = target_dir("peers")?.join("diderot-source");
    std::fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let shared =
        ["fleet.go", "updater.go", "go.mod", "go.sum"].map(|file| ("go-control-plane", file));
    for (peer, file) in shared.into_iter().chain([("diderot", "main.go")]) {
        let from = sources.join(peer).join(file);
        std::fs::copy(&from, folder.join(file)).with_context(|| format!("{}", from.display()))?;
    }
    let mut go = Command::new(parts::go()?);
    go.arg("-C").arg(&folder).args(["mod", "edit"]);
    go.args(["-require", &format!("{MODULE}@v0.0.0")]);
    go.args(["-replace", &format!("{MODULE}={}", checkout.display())]);
    sh::run_unannounced(&mut go)?;
    Ok(folder)
}
