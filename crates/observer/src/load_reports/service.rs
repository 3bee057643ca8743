//! `envoy.service.load_stats.v3.LoadReportingService`.

use std::pin::Pin;

use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::LoadReportingService;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;
use futures::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{LoadReports, Reporter};
use crate::limits::LOAD_REPORT_INTERVAL;

/// The service: asks every client for all of its clusters, and keeps what they report.
#[derive(Clone, Debug)]
pub struct LoadReporting {
    reports: LoadReports,
    stopping: CancellationToken,
}

impl LoadReporting {
    /// Reports go to `reports`; streams end once `stopping` is cancelled.
    #[must_use]
    pub fn new(reports: LoadReports, stopping: CancellationToken) -> Self {
        Self { reports, stopping }
    }
}

/// One client's stream, pulled by the connection that writes its only response.
struct Conversation {
    requests: Streaming<LoadStatsRequest>,
    reporter: Reporter,
    stopping: CancellationToken,
    is_told: bool,
}

#[tonic::async_trait]
impl LoadReportingService for LoadReporting {
    type StreamLoadStatsStream =
        Pin<Box<dyn Stream<Item = Result<LoadStatsResponse, Status>> + Send>>;

    async fn stream_load_stats(
        &self,
        request: Request<Streaming<LoadStatsRequest>>,
    ) -> Result<Response<Self::StreamLoadStatsStream>, Status> {
        let conversation = Conversation {
            requests: request.into_inner(),
            reporter: self.reports.reporter(),
            stopping: self.stopping.clone(),
            is_told: false,
        };
        let responses = futures::stream::try_unfold(conversation, Conversation::next_response);
        Ok(Response::new(Box::pin(responses)))
    }
}

impl Conversation {
    /// Reads until there is something to say: what to report, after the first message; the end, when the
    /// client ends or this Observer stops.
    async fn next_response(mut self) -> Result<Option<(LoadStatsResponse, Self)>, Status> {
        let stopping = self.stopping.clone();
        loop {
            let message = tokio::select! {
                message = self.requests.message() => message?,
                () = stopping.cancelled() => {
                    return Err(Status::unavailable("this Observer stops; report to another"));
                }
            };
            let Some(message) = message else {
                return Ok(None);
            };
            // The first one names the node and has nothing to report (gRFC A27).
            if self.is_told || !message.cluster_stats.is_empty() {
                self.reporter.report(&message.cluster_stats);
            }
            if !self.is_told {
                self.is_told = true;
                return Ok(Some((what_to_report(), self)));
            }
        }
    }
}

fn what_to_report() -> LoadStatsResponse {
    let seconds = i64::try_from(LOAD_REPORT_INTERVAL.as_secs()).unwrap_or(i64::MAX);
    LoadStatsResponse {
        send_all_clusters: true,
        load_reporting_interval: Some(protobuf::Duration { seconds, nanos: 0 }),
        // Sums by locality are what load balancing needs, at a fraction of the bytes.
        report_endpoint_granularity: false,
        clusters: Vec::new(),
    }
}
