//! Planted bugs: a copy of the sources, one bug at a time, and the scenarios that must find it.
//!
//! A scenario that finds no bug shows nothing.

mod list;

use std::collections::BTreeSet;
use std::fmt;

use anyhow::bail;

use crate::copy::{Ended, TreeCopy};
pub use list::{MUTANTS, Mutant};

/// How a planted bug was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Which bug.
    pub mutant: &'static Mutant,
    /// The scenarios that failed; none if they did not end.
    pub by: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scenarios = self.by.iter().map(|name| {
            let name = name.rsplit("::").next().unwrap_or(name);
            match name.split_once('_') {
                Some((number, _)) if is_number(number) => number,
                _ => name,
            }
        });
        let by = scenarios.collect::<BTreeSet<_>>();
        let by = by.into_iter().collect::<Vec<_>>().join(" ");
        let by = if by.is_empty() { "did not end" } else { &by };
        write!(f, "{:<22} {by:<16} {}", self.mutant.name, self.mutant.what)
    }
}

/// Whether it numbers a scenario: `s07`.
fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix('s');
    digits.is_some_and(|digits| digits.parse::<u32>().is_ok())
}

/// Plants each bug of `names` (all, if there are none) in a copy of the tree and runs its scenarios.
/// `tell` hears of each as it is found.
///
/// # Errors
/// A bug that cannot be planted or compiled, or that nobody finds.
pub fn run(
    copy: &TreeCopy,
    names: &[String],
    tell: &mut dyn FnMut(&Found),
) -> anyhow::Result<Vec<Found>> {
    let is_known = |name: &&String| MUTANTS.iter().any(|mutant| mutant.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        bail!("no planted bug is called {unknown:?}");
    }
    let chosen = |m: &&Mutant| names.is_empty() || names.iter().any(|name| name == m.name);
    let mut found = Vec::new();
    let mut wrong = Vec::new();
    for mutant in MUTANTS.iter().filter(chosen) {
        match plant(copy, mutant) {
            Ok(one) => {
                tell(&one);
                found.push(one);
            }
            Err(error) => wrong.push(format!("{} ({}): {error:#}", mutant.name, mutant.what)),
        }
    }
    if wrong.is_empty() {
        return Ok(found);
    }
    bail!("planted bugs that nobody found:\n{}", wrong.join("\n"))
}

/// Plants one bug, runs its scenarios, and takes it out again.
fn plant(copy: &TreeCopy, mutant: &'static Mutant) -> anyhow::Result<Found> {
    let original = copy.read(mutant.file)?;
    let places = original.matches(mutant.find).count();
    if places != 1 {
        bail!("its text stands {places} times in {}", mutant.file);
    }
    copy.write(mutant.file, &original.replace(mutant.find, mutant.replace))?;
    let done = copy.build();
    let done = done.and_then(|program| copy.play(&program, mutant.found_by));
    copy.write(mutant.file, &original)?;
    let played = done?;
    if played.ended == Ended::Well {
        bail!("{} passed", mutant.found_by.join(", "));
    }
    Ok(Found {
        mutant,
        by: played.failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_can_be_planted_in_one_place() {
        for mutant in MUTANTS {
            let text = std::fs::read_to_string(crate::root().join(mutant.file)).unwrap();
            let places = text.matches(mutant.find).count();
            assert_eq!(places, 1, "{}: {}", mutant.name, mutant.file);
        }
        let names: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), MUTANTS.len());
    }
}
