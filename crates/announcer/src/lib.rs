//! Announces instances to a Waypost log, and writes service and cluster definitions and what
//! operators state with their own hand.
//!
//! An *instance* is one URI of one cluster. A server links this crate, hands an [`Announcement`] to
//! [`AnnouncerPool::announce`] and changes it through the [`Announcer`] it gets back: mark up, mark
//! down, weight, health, metadata. Everything that the log's rules ask of an announcer is done here:
//! order data, heartbeats spread over their interval, retries with jitter, bounded memory while the
//! log is away (docs/announcement-log.md, "Records" and "Order within a key").
//!
//! ```no_run
//! use std::sync::Arc;
//! use waypost_announcer::{AnnouncerPool, GatewaySink, PoolOptions};
//! use waypost_core::{Announcement, ClusterName, InstanceUri, Timestamp};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let gateway = GatewaySink::new(&["127.0.0.1:18000"])?;
//! let pool = AnnouncerPool::spawn(Arc::new(gateway), PoolOptions::default());
//! let announcer = pool.announce(Announcement::new(
//!     ClusterName::parse("greeter")?,
//!     InstanceUri::parse("grpc://10.0.0.7:50051")?,
//!     Timestamp::default(),
//! ))?;
//! announcer.settled().await?; // the log has it
//! announcer.change_weight([(0, 0.5)].into())?;
//! announcer.mark_down(); // before the server stops taking calls
//! announcer.settled().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Where records go is a [`Sink`]: [`LogSink`] writes to the log itself, [`GatewaySink`] to the
//! gateway of an Observer, for those who cannot reach Kafka.

mod clock;
mod config;
pub mod definitions;
pub mod limits;
mod machine;
pub mod operator;
mod pool;
mod settings;
mod sink;
mod status;

pub use config::{Conflicts, Told, WriteError};
pub use pool::{AnnounceError, Announcer, AnnouncerPool, Driver, PoolOptions, Stopped, Verdicts};
pub use settings::{SettingsError, check};
pub use sink::{
    GatewayAddressError, GatewaySink, InstanceRecord, LogSink, Receipt, Sink, SinkError, Verdict,
    connect_lazy, explain,
};
pub use status::{Progress, Status, Wanted};
pub use waypost_core::{Announcement, Health, PartitionWeights};
pub use waypost_tls::ClientTls;
