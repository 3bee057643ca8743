//! The certificates of the gRPC port.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use waypost_core::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// What became of the files; clones share it.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    not_after: Gauge,
    reloads: Family<OutcomeLabel, Counter>,
}

impl TlsMetrics {
    /// Shown only where TLS is spoken.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let m = Self::default();
        registry.register(
            "observer_tls_certificate_not_after_seconds",
            "When the certificate in force ends, or the first of those that lead from it to a CA (Unix time)",
            m.not_after.clone(),
        );
        registry.register(
            "observer_tls_reloads",
            "Times that changed files of certificates were read, by whether they are in force",
            m.reloads.clone(),
        );
        for outcome in ["renewed", "refused"] {
            let _ = m.reloads.get_or_create(&OutcomeLabel { outcome });
        }
        m
    }

    pub(crate) fn set_not_after(&self, time: Timestamp) {
        self.not_after.set(time.0 / 1000);
    }

    pub(crate) fn on_renewed(&self) {
        self.count("renewed");
    }

    pub(crate) fn on_refused(&self) {
        self.count("refused");
    }

    fn count(&self, outcome: &'static str) {
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
