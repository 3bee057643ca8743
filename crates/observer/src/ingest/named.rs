//! Naming bad records in the process's log without letting them fill it.

use std::time::Duration;

use crate::limits::{NAMED_RECORDS_MAX, NAMED_RECORDS_WINDOW};

/// Lets [`NAMED_RECORDS_MAX`] lines through per window and counts the rest.
#[derive(Debug, Default)]
pub(super) struct NamedRecords {
    window_start: Duration,
    named: u32,
    unnamed: u64,
}

impl NamedRecords {
    /// Whether one more may be named at `now`; before the first of a new window, says how many of
    /// the last one were not.
    pub(super) fn may_name(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.window_start) >= NAMED_RECORDS_WINDOW {
            if self.unnamed > 0 {
                tracing::warn!(
                    count = self.unnamed,
                    "more records were refused or skipped than are named here; see the metrics"
                );
            }
            *self = Self {
                window_start: now,
                ..Self::default()
            };
        }
        let may = self.named < NAMED_RECORDS_MAX;
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
        let mut named = NamedRecords::default();
        let now = Duration::from_secs(1);
        let passed = (0..1000).filter(|_| named.may_name(now)).count();
        assert_eq!(passed, NAMED_RECORDS_MAX as usize);
        assert!(named.may_name(now + NAMED_RECORDS_WINDOW));
    }
}
