//! What has become of an instance's last change.

use waypost_core::record::Appended;

/// What the owner of an instance wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// It is to be found.
    Up,
    /// It is not, or not yet.
    Down,
}

/// How far the last change has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was ever written, and nothing has to be.
    Idle,
    /// The log has not acknowledged it yet.
    Pending,
    /// The log has it.
    Acknowledged(Appended),
    /// An Observer has read it and serves it. Only gateways say so.
    Served(Appended),
    /// The log has it, but its rules refuse it: another announcement stands. The instance goes on
    /// beating and takes over when the other one stops. Only gateways say so.
    Refused {
        /// Where the log has it.
        appended: Appended,
        /// Which announcement stands instead.
        reason: String,
    },
}

/// An instance as its announcer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What its owner wants.
    pub wanted: Wanted,
    /// Counts the owner's changes; the `waypost-seq` of its records.
    pub change: u64,
    /// How far the last change has come.
    pub progress: Progress,
    /// Why the last write (a heartbeat, too) failed; `None` once one succeeds. It is tried again.
    pub trouble: Option<String>,
}

impl Status {
    /// Whether the log has the last change, or there was none to write.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.progress != Progress::Pending
    }

    /// Whether an Observer has given its verdict on the last change.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        matches!(
            self.progress,
            Progress::Idle | Progress::Served(_) | Progress::Refused { .. }
        )
    }
}
