//! The certificates of the gRPC port: looked at now and then and when asked to, in force for connections that
//! are made from then on. Streams that are open go on as they are.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use waypost_runtime::{Readiness, WallClock};
use waypost_tls::limits::LOOK_INTERVAL;
use waypost_tls::{Look, ServerCertificates};

use crate::metrics::TlsMetrics;

/// Under which readiness names what is wrong with them.
const NOTICE: &str = "tls";

/// Keeps the certificates up with their files until `stop`.
pub(crate) struct CertificateKeeper {
    certificates: ServerCertificates,
    clock: WallClock,
    readiness: Readiness,
    metrics: TlsMetrics,
}

impl CertificateKeeper {
    pub(crate) fn new(
        certificates: ServerCertificates,
        clock: WallClock,
        readiness: Readiness,
        metrics: TlsMetrics,
    ) -> Self {
        let keeper = Self {
            certificates,
            clock,
            readiness,
            metrics,
        };
        keeper.tell();
        tracing::info!(
            subject = keeper.certificates.subject(),
            not_after = keeper.certificates.not_after_text(),
            "TLS: the certificate is in force"
        );
        keeper
    }

    pub(crate) async fn run(mut self, asked: Arc<Notify>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                () = asked.notified() => tracing::info!("TLS: the files are read again"),
                () = stop.cancelled() => return,
            }
            match self.certificates.look(self.clock.now()).await {
                Look::Unchanged => {}
                Look::Renewed => {
                    self.metrics.on_renewed();
                    tracing::info!(
                        subject = self.certificates.subject(),
                        not_after = self.certificates.not_after_text(),
                        "TLS: the files have changed and are in force for new connections"
                    );
                }
                Look::Refused(why) => {
                    self.metrics.on_refused();
                    tracing::error!(
                        why,
                        in_force_until = self.certificates.not_after_text(),
                        "TLS: the files cannot be used; what was read before stays in force"
                    );
                }
            }
            self.tell();
        }
    }

    /// Says how things stand, wherever that is looked for.
    fn tell(&self) {
        let certificates = &self.certificates;
        self.metrics.set_not_after(certificates.not_after());
        let until = certificates.not_after_text();
        if certificates.not_after() < self.clock.now() {
            let text = format!("the certificate expired at {until}; clients do not take it");
            self.readiness.set_notice(NOTICE, &text);
        } else if let Some(why) = certificates.problem() {
            let text = format!("{why}; the certificate read before is in force until {until}");
            self.readiness.set_notice(NOTICE, &text);
        } else {
            self.readiness.clear_notice(NOTICE);
        }
    }
}
