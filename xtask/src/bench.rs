//! Measurements. Figures worth keeping go into `bench/RESULTS.md` by hand, with the machine.

use std::process::Command;

use clap::Subcommand;

use crate::cargo::{cargo, target_dir};
use crate::sh;

/// What to measure.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Load {
    /// 10,000 instances, 1,000 streams of 10 names each: deliveries per CPU-second of the Observer,
    /// bytes per stream and per instance, propagation.
    Smoke {
        /// A tenth of it, unoptimised: shows that it runs, measures nothing.
        #[arg(long)]
        short: bool,
    },
}

/// Builds and runs one measurement.
pub(crate) fn run(load: Load) -> anyhow::Result<()> {
    let Load::Smoke { short } = load;
    let packages = ["-p", "waypost", "-p", "waypost-bench", "--bins"];
    let release: &[&str] = if short { &[] } else { &["--release"] };
    sh::run(&mut cargo(
        &[&["build", "--locked"], &packages[..], release].concat(),
    ))?;
    sh::run(&mut smoke(short)?)
}

/// The program that measures; built before.
pub(crate) fn smoke(short: bool) -> anyhow::Result<Command> {
    let profile = if short { "debug" } else { "release" };
    let mut command = Command::new(target_dir(profile)?.join("waypost-bench"));
    command.arg("smoke").args(short.then_some("--short"));
    Ok(command)
}
