//! Writing for others.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    result: &'static str,
}

/// Counters of the gateway; clones share them.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics {
    requests: Family<RequestLabels, Counter>,
}

impl GatewayMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let m = Self::default();
        registry.register(
            "gateway_requests",
            "Requests to write to the log for somebody, by method and result",
            m.requests.clone(),
        );
        m
    }

    /// A request was answered: `result` of a method of the service.
    pub fn on_request<T>(&self, method: &'static str, result: &Result<T, tonic::Status>) {
        let result = match result {
            Ok(_) => "ok",
            Err(status) => match status.code() {
                tonic::Code::InvalidArgument => "invalid_argument",
                tonic::Code::Unavailable => "unavailable",
                tonic::Code::ResourceExhausted => "resource_exhausted",
                tonic::Code::FailedPrecondition => "failed_precondition",
                _ => "other",
            },
        };
        let labels = RequestLabels { method, result };
        self.requests.get_or_create(&labels).inc();
    }
}
