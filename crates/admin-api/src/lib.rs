//! The JSON API of an Observer's admin port: what the CLI, the console and scripts read.
//!
//! Stable: fields are only ever added, and a reader ignores what it does not know. Conventions:
//!
//! * Everything is under [`BASE`] and answers `GET`; [`path`] builds the addresses.
//! * Instants end in `_at_ms` (milliseconds since 1970-01-01 UTC), spans in `_ms`, counts of bytes in
//!   `_bytes`. An age is counted at the moment of the answer, on the log's clock where one exists.
//! * What is unknown is `null`, never a made-up zero.
//! * Lists come in [`Page`]s, in name order. `?limit=N` asks for fewer, `?after=CURSOR` goes on.
//! * An error is an [`ErrorBody`] with a 4xx or 5xx status; its text is one line for people.
//! * `GET /api/v1/watch/{cluster}` streams [`WatchEvent`]s, one JSON object a line
//!   (`application/x-ndjson`), and never ends by itself.

mod callees;
mod catalogue;
mod digest;
mod dump;
mod operator;
pub mod path;
mod status;
mod streams;
mod watch;

use serde::{Deserialize, Serialize};

pub use callees::CalleesView;
pub use catalogue::{
    AnnouncedView, ClusterSummary, ClusterView, DefinitionView, HealthCounts, LeftOutView,
    LoadView, LocalityLoadView, LogFacts, RefusedNote, ServiceView, SourceView, UriHealth, UriView,
};
pub use digest::{
    BucketDigests, BucketKeys, DIGEST_BUCKETS, DigestedKey, Digests, PartitionDigests, TickDigest,
};
pub use dump::{ConfigDump, ResourceEntry};
pub use operator::{
    ConflictView, EvictionView, JournalView, OperatorView, OrphanView, OverrideView, ReleaseView,
};
pub use status::{
    Counts, HoldingScope, KeeperRole, KeeperStatus, LogKind, LogStatus, ObserverInfo,
    OrphanedDefinition, PartitionStatus, Pending, RefusedDefinition, SharedSymlinks, SourceState,
    SourceStatus, Status, TopicStatus,
};
pub use streams::{AddressFamilies, ClientKindName, Protocol, ScopeView, StreamType, StreamView};
pub use watch::{WatchEvent, WatchEventKind};

/// Where the API begins.
pub const BASE: &str = "/api/v1";

/// Entries in one page at most, and when the asker names no limit. Ten thousand rows are a few
/// megabytes of JSON: enough for every list of one cluster that is still readable.
pub const PAGE_ITEMS_MAX: usize = 10_000;

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The entries, in name order.
    pub items: Vec<T>,
    /// Pass this as `?after=` for the entries that follow; `null` on the last page.
    pub next: Option<String>,
}

/// What every answer that is not 2xx holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// One line: what is wrong and what to do.
    pub error: String,
}
