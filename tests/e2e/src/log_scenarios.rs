//! The rules of the log, in a world with one clock that is moved by hand (`tests/sim`): the numbered
//! scenarios, any interleaving of everything, and bugs planted to be found by them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use waypost_sim::copy::{Ended, TreeCopy};
use waypost_sim::mutants::{self, MUTANTS};

use crate::Form;
use crate::figures::Figures;

/// Scenarios that docs/announcement-log.md numbers: at least so many.
const SCENARIOS: usize = 33;

/// Cases of the property test: as promised, and in every test run.
const CASES: u64 = 100_000;
/// The same, in every test run.
const CASES_SHORT: u64 = 3_000;

/// Runs the proof.
///
/// # Errors
/// A scenario or a case does not hold, or a planted bug is found by nobody.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    figures.step("copying and building what the scenarios are made of");
    let copy = TreeCopy::make(&waypost_sim::root(), &folder()?)?;
    let program = copy.build()?;

    figures.step("playing the scenarios");
    let played = copy.play(&program, &[])?;
    let failed = played.failed.join(", ");
    ensure!(played.ended == Ended::Well, "these do not hold: {failed}");
    let numbers: BTreeSet<_> = played.passed.iter().filter_map(|n| number_of(n)).collect();
    figures.add("scenarios", played.passed.len());
    figures.add("of them numbered", numbers.len());
    let missing: Vec<_> = (1..=SCENARIOS).filter(|n| !numbers.contains(n)).collect();
    ensure!(missing.is_empty(), "no scenario is numbered {missing:?}");

    let cases = form.pick(CASES, CASES_SHORT);
    figures.step(&format!("playing {cases} cases of any interleaving"));
    figures.add("any interleaving", copy.play_property(0, cases)?);

    figures.step("planting bugs");
    let mut killed = 0;
    let mut tell = |found: &mutants::Found| {
        killed += 1;
        figures.step(&found.to_string());
    };
    let found = mutants::run(&copy, &[], &mut tell);
    figures.add(
        "planted bugs found",
        format!("{killed} of {}", MUTANTS.len()),
    );
    found.map(|_| ())
}

/// The number in `module::s07_a_host_…`.
fn number_of(name: &str) -> Option<usize> {
    let name = name.rsplit("::").next()?;
    name.strip_prefix('s')?.split('_').next()?.parse().ok()
}

/// Where the copy is kept: beside the build that this program is part of.
fn folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(2);
    Ok(target
        .context("this program is in no build")?
        .join("log-scenarios"))
}
