//! Proofs: programs of `tests/e2e` that show, with real servers and clients, that a promise holds.

use std::process::Command;

use crate::cargo::{cargo, target_dir};
use crate::sh;

/// Says what the proofs are.
pub(crate) fn list() -> anyhow::Result<()> {
    build()?;
    sh::run(prover()?.arg("--list"))
}

/// Builds the product and runs one proof; its failure is an error.
pub(crate) fn run(name: &str, short: bool) -> anyhow::Result<()> {
    crate::parts::install()?;
    build()?;
    sh::run(prover()?.arg(name).args(short.then_some("--short")))
}

/// The program that runs proofs; built by [`build`] or by a build of everything.
pub(crate) fn prover() -> anyhow::Result<Command> {
    Ok(Command::new(target_dir("debug")?.join("waypost-prove")))
}

fn build() -> anyhow::Result<()> {
    sh::run(&mut cargo(&[
        "build",
        "--locked",
        "-p",
        "waypost",
        "-p",
        "waypost-e2e",
        "--bins",
    ]))
}
