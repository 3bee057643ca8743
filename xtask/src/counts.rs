//! How many tests passed and failed, as the test programs say.

use std::fmt;
use std::ops::AddAssign;

use crate::sh::Captured;

/// Passed and failed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Counts {
    /// One check that passed or failed.
    pub(crate) fn one(passed: bool) -> Self {
        Self {
            passed: usize::from(passed),
            failed: usize::from(!passed),
        }
    }

    /// What a Rust test program (or several in a row) says of itself. An ignored test is a failed
    /// one: a test that never runs shows nothing. So is an end without a failed test to blame.
    pub(crate) fn of_program(captured: &Captured) -> Self {
        let mut counts = Self::default();
        for line in captured
            .text
            .lines()
            .filter(|line| line.starts_with("test result: "))
        {
            counts += Self {
                passed: number_before(line, " passed"),
                failed: number_before(line, " failed") + number_before(line, " ignored"),
            };
        }
        if captured.outcome.is_err() && counts.failed == 0 {
            counts.failed = 1;
        }
        counts
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

fn number_before(line: &str, word: &str) -> usize {
    let before = line.find(word).map(|at| &line[..at]);
    before
        .and_then(|text| text.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(text: &str, outcome: Result<(), String>) -> Captured {
        Captured {
            text: text.to_owned(),
            outcome,
        }
    }

    #[test]
    fn counts_are_read_from_what_a_test_program_prints() {
        let text = "running 5 tests\ntest result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured\n\
                    test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let counts = Counts::of_program(&captured(text, Err("exit status: 101".to_owned())));
        assert_eq!(
            counts,
            Counts {
                passed: 15,
                failed: 2
            }
        );
    }

    #[test]
    fn a_program_that_dies_without_a_verdict_has_failed() {
        for text in ["", "test result: ok. 3 passed; 0 failed; 0 ignored;\n"] {
            let counts = Counts::of_program(&captured(text, Err("signal: 6".to_owned())));
            assert_eq!(counts.failed, 1, "{text:?}");
        }
    }
}
