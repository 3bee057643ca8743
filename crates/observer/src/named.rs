//! Naming what goes wrong in the process's log without letting it fill the disk.

use std::time::Duration;

use crate::limits::{NAMED_LINES_MAX, NAMED_LINES_WINDOW};

/// Lets [`NAMED_LINES_MAX`] lines through per window and counts the rest.
#[derive(Debug)]
pub(crate) struct NamedLines {
    what: &'static str,
    window_start: Duration,
    named: u32,
    unnamed: u64,
}

impl NamedLines {
    /// Lines about things of which `what` is the plural, for example `records were skipped`.
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            window_start: Duration::ZERO,
            named: 0,
            unnamed: 0,
        }
    }

    /// Whether one more may be named at `now`, any monotonic time; before the first of a new window,
    /// says how many of the last one were not.
    pub(crate) fn may_name(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.window_start) >= NAMED_LINES_WINDOW {
            if self.unnamed > 0 {
                tracing::warn!(
                    count = self.unnamed,
                    "more {} than are named here; see the metrics",
                    self.what
                );
            }
            *self = Self {
                window_start: now,
                ..Self::new(self.what)
            };
        }
        let may = self.named < NAMED_LINES_MAX;
        if may {
            self.named += 1;
        } else {
            self.unnamed += 1;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_named_in_part_and_again_in_the_next_window() {
        let mut named = NamedLines::new("things happened");
        let now = Duration::from_secs(1);
        let passed = (0..1000).filter(|_| named.may_name(now)).count();
        assert_eq!(passed, NAMED_LINES_MAX as usize);
        assert!(named.may_name(now + NAMED_LINES_WINDOW));
    }
}
