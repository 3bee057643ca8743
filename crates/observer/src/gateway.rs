//! `waypost.v1.Gateway`: writes to the log for those who cannot reach Kafka. It never touches the
//! store: what it wrote is served once this Observer reads it back, like everybody's.

mod append;
mod definitions;
mod operator;
mod sight;
mod strict;

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use tonic::{Request, Response, Status};
use waypost_announcer::WriteError;
use waypost_announcer::operator::sign;
use waypost_core::config::Signed;
use waypost_core::{AnnouncementLog, LogError};
use waypost_proto::v1 as pb;
use waypost_runtime::WallClock;

use crate::metrics::GatewayMetrics;
use crate::progress::Progress;
use crate::settings::LogWrites;

pub use sight::Sight;
pub use strict::Strict;

/// The service. Clones share everything.
#[derive(Clone, Debug)]
pub struct Gateway {
    log: Arc<dyn AnnouncementLog>,
    progress: Progress,
    sight: Sight,
    clock: WallClock,
    log_writes: LogWrites,
    metrics: GatewayMetrics,
}

impl Gateway {
    /// A gateway to `log` that hears what becomes of records from `progress`, and sees what this
    /// Observer holds.
    #[must_use]
    pub fn new(
        log: Arc<dyn AnnouncementLog>,
        progress: Progress,
        sight: Sight,
        clock: WallClock,
        log_writes: LogWrites,
        metrics: GatewayMetrics,
    ) -> Self {
        Self {
            log,
            progress,
            sight,
            clock,
            log_writes,
            metrics,
        }
    }

    /// Who states something, when, and why.
    fn sign(&self, author: &str, reason: &str) -> Result<Signed, Status> {
        let author = if author.is_empty() { UNKNOWN } else { author };
        sign(author, reason, self.clock.now()).map_err(|e| Status::invalid_argument(e.to_string()))
    }

    fn check_writable(&self) -> Result<(), Status> {
        match self.log_writes {
            LogWrites::Keep => Ok(()),
            LogWrites::ReadOnly => Err(Status::failed_precondition(
                "this Observer only reads the log (--read-only); use an Observer of the log's own fabric",
            )),
        }
    }
}

/// The author of a request that names none.
const UNKNOWN: &str = "unknown";

type AppendStream = Pin<Box<dyn Stream<Item = Result<pb::AppendProgress, Status>> + Send>>;

#[tonic::async_trait]
impl pb::gateway_server::Gateway for Gateway {
    type AppendStream = AppendStream;

    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<AppendStream>, Status> {
        let result = match self.check_writable() {
            Ok(()) => append::append(self, request.into_inner()).await,
            Err(status) => Err(status),
        };
        self.metrics.on_request("append", &result);
        result.map(Response::new)
    }

    async fn apply(
        &self,
        request: Request<pb::ApplyRequest>,
    ) -> Result<Response<pb::ApplyResponse>, Status> {
        let result = match self.check_writable() {
            Ok(()) => definitions::apply(self, request.into_inner()).await,
            Err(status) => Err(status),
        };
        self.metrics.on_request("apply", &result);
        result.map(Response::new)
    }

    async fn delete(
        &self,
        request: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::DeleteResponse>, Status> {
        let result = match self.check_writable() {
            Ok(()) => definitions::delete(self, request.into_inner()).await,
            Err(status) => Err(status),
        };
        self.metrics.on_request("delete", &result);
        result.map(Response::new)
    }

    async fn set(
        &self,
        request: Request<pb::SetRequest>,
    ) -> Result<Response<pb::SetResponse>, Status> {
        let result = match self.check_writable() {
            Ok(()) => operator::set(self, request.into_inner()).await,
            Err(status) => Err(status),
        };
        self.metrics.on_request("set", &result);
        result.map(Response::new)
    }

    async fn evict(
        &self,
        request: Request<pb::EvictRequest>,
    ) -> Result<Response<pb::EvictResponse>, Status> {
        let result = match self.check_writable() {
            Ok(()) => operator::evict(self, request.into_inner()).await,
            Err(status) => Err(status),
        };
        self.metrics.on_request("evict", &result);
        result.map(Response::new)
    }

    async fn release(
        &self,
        request: Request<pb::ReleaseRequest>,
    ) -> Result<Response<pb::ReleaseResponse>, Status> {
        let result = match self.check_writable() {
            Ok(()) => operator::release(self, request.into_inner()).await,
            Err(status) => Err(status),
        };
        self.metrics.on_request("release", &result);
        result.map(Response::new)
    }

    async fn restore(
        &self,
        request: Request<pb::RestoreRequest>,
    ) -> Result<Response<pb::RestoreResponse>, Status> {
        let result = match self.check_writable() {
            Ok(()) => operator::restore(self, request.into_inner()).await,
            Err(status) => Err(status),
        };
        self.metrics.on_request("restore", &result);
        result.map(Response::new)
    }
}

/// How an error of a write to the config topic looks to a caller.
fn status_of_write(error: &WriteError) -> Status {
    match error {
        WriteError::Outdated { .. } => Status::aborted(error.to_string()),
        WriteError::Log(error) => status_of(error),
    }
}

/// How an error of the log looks to a caller: `UNAVAILABLE` is worth another try, the rest is not.
fn status_of(error: &LogError) -> Status {
    let text = error.to_string();
    match error {
        LogError::Unavailable(_) | LogError::Closed => Status::unavailable(text),
        LogError::Refused(_) => Status::invalid_argument(text),
        LogError::Conflict(_) => Status::aborted(text),
        LogError::Misconfigured(_) | LogError::InUse(_) => Status::failed_precondition(text),
        LogError::Damaged(_) => Status::data_loss(text),
    }
}
