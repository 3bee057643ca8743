//! What an engine has done, in numbers.

/// Counts since the machine was made; none of them ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Streams that were opened, successfully or not.
    pub streams_opened: u64,
    /// Streams that ended before the first response.
    pub streams_failed: u64,
    /// Streams that ended after a response.
    pub streams_lost: u64,
    /// Requests sent, verdicts included.
    pub requests: u64,
    /// Responses of types that are watched.
    pub responses: u64,
    /// Responses confirmed.
    pub acks: u64,
    /// Responses refused, in part or whole.
    pub nacks: u64,
    /// Resources taken whose content was new.
    pub resources_changed: u64,
    /// Resources taken whose content was known.
    pub resources_unchanged: u64,
    /// Resources refused.
    pub resources_rejected: u64,
    /// Resources that the server said do not exist.
    pub resources_absent: u64,
    /// Subscriptions that no server said anything about within the resource timer.
    pub resources_silent: u64,
}
