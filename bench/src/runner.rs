//! Runs scenarios in turns: ours, peer, ours, peer, so that what else the machine does meets both.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::machine::Machine;
use crate::report::{Outcome, Report, SideRuns};
use crate::scenario::{ALL, Peers, Scenario, Setup, Size};
use crate::server::{Role, Side};

/// Runs of each scenario and side where nobody says how many: enough for a median.
const RUNS: usize = 3;

/// What to measure, and against whom.
#[derive(Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// Scenarios, as `--list` names them; all by default.
    scenarios: Vec<String>,
    /// Say what the scenarios are.
    #[arg(long)]
    list: bool,
    /// A peer to compare with: its name, and a program that takes the flags of a server under test.
    #[arg(long = "peer", value_name = "NAME=PROGRAM")]
    peers: Vec<String>,
    /// The server of ours, where it is not this program's own (`serve`).
    #[arg(long)]
    server: Option<PathBuf>,
    /// Compare ours on one core with ours on so many: what a unit of work costs may hardly grow. All
    /// scenarios that say what a unit costs.
    #[arg(long, value_name = "COUNT", conflicts_with = "peers")]
    server_cores: Option<usize>,
    /// Runs of each scenario and side.
    #[arg(long, default_value_t = RUNS)]
    runs: usize,
    /// Every scenario in small, once: shows that it runs, measures and judges nothing.
    #[arg(long)]
    short: bool,
    /// How long the headline runs, where there are no ten minutes.
    #[arg(long)]
    seconds: Option<u64>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs scenarios and prints the tables; fails where a judged bar is missed.
///
/// # Errors
/// A scenario is unknown, or one cannot be run.
pub(crate) fn run(options: &RunOptions) -> anyhow::Result<ExitCode> {
    if options.list {
        for scenario in ALL {
            println!("{:<14} {}", scenario.name, scenario.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let ours = ours(options)?;
    let others = others(&ours, options)?;
    let mut report = Report::new(Machine::look(), options.short);
    for scenario in chosen(options)? {
        let mut sides = vec![&ours];
        let is_compared = |other: &&Side| match other.role {
            Role::OursOnCores(_) => true,
            Role::Ours | Role::Peer => scenario.peers == Peers::Compared,
        };
        sides.extend(others.iter().filter(is_compared));
        let outcome = run_in_turns(scenario, &sides, options)?;
        if !options.json {
            println!("{}", outcome.to_table());
        }
        report.add(outcome);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", report.closing_lines());
    }
    Ok(if report.is_met() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_in_turns(
    scenario: &'static Scenario,
    sides: &[&Side],
    options: &RunOptions,
) -> anyhow::Result<Outcome> {
    let (size, runs) = if options.short {
        (Size::Short, 1)
    } else {
        (Size::Full, options.runs.max(1))
    };
    let mut by_side: Vec<SideRuns> = sides.iter().map(|side| SideRuns::new(side)).collect();
    for turn in 1..=runs {
        for (side, results) in sides.iter().zip(&mut by_side) {
            let (server_cores, load_cores) = side.placement();
            let setup = Setup {
                side,
                size,
                server_cores,
                load_cores,
                time: options.seconds.map(Duration::from_secs),
            };
            let what = || format!("{}, {}, run {turn}", scenario.name, side.name);
            let values = (scenario.run)(&setup).with_context(what)?;
            eprintln!("{}: {}", what(), values.one_line(scenario));
            results.add(values);
        }
    }
    Ok(Outcome::new(scenario, by_side, size))
}

fn ours(options: &RunOptions) -> anyhow::Result<Side> {
    match &options.server {
        Some(program) => Ok(Side::waypost(vec![program.clone().into_os_string()])),
        None => Side::ours(),
    }
}

fn parse_peer(peer: &str) -> anyhow::Result<Side> {
    let (name, program) = peer
        .split_once('=')
        .with_context(|| format!("--peer {peer}: NAME=PROGRAM is wanted"))?;
    Ok(Side {
        name: name.to_owned(),
        command: vec![program.into()],
        role: Role::Peer,
    })
}

/// What ours is compared with.
fn others(ours: &Side, options: &RunOptions) -> anyhow::Result<Vec<Side>> {
    match options.server_cores {
        Some(count) => Ok(vec![ours.on_cores(count)]),
        None => options.peers.iter().map(|peer| parse_peer(peer)).collect(),
    }
}

fn chosen(options: &RunOptions) -> anyhow::Result<Vec<&'static Scenario>> {
    let names = &options.scenarios;
    for name in names {
        let Some(scenario) = ALL.iter().find(|scenario| scenario.name == name) else {
            bail!("no scenario is called {name:?}: see --list");
        };
        if options.server_cores.is_some() && !scenario.has_unit_cost() {
            bail!("{name} does not say what a unit of work costs: not with --server-cores");
        }
    }
    let is_chosen = |scenario: &&Scenario| match &names[..] {
        [] => options.server_cores.is_none() || scenario.has_unit_cost(),
        names => names.iter().any(|name| name == scenario.name),
    };
    Ok(ALL.iter().filter(is_chosen).collect())
}
