//! Proofs: programs of `tests/e2e` that show, with real servers and clients, that a promise holds.

use std::process::Command;

use crate::cargo::{build_all, target_dir};
use crate::sh;

/// Says what the proofs are.
pub(crate) fn list() -> anyhow::Result<()> {
    build_all()?;
    sh::run(prover()?.arg("--list"))
}

/// Builds the product and runs one proof; its failure is an error.
pub(crate) fn run(name: &str, short: bool) -> anyhow::Result<()> {
    crate::parts::install()?;
    build_all()?;
    sh::run(prover()?.arg(name).args(short.then_some("--short")))
}

/// The program that runs proofs. It and the product are built by [`build_all`]: the build that the
/// test command makes, so that one serves both.
pub(crate) fn prover() -> anyhow::Result<Command> {
    Ok(Command::new(target_dir("debug")?.join("waypost-prove")))
}
