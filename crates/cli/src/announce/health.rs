//! Health checks of the server beside the agent.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use waypost_announcer::{ClientTls, connect_lazy, explain};
use waypost_core::InstanceUri;

use crate::admin;
use crate::limits::HEALTH_CHECK_MAX;

/// What is asked, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthCheck {
    text: String,
    address: String,
    probe: Probe,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Probe {
    /// A connection is accepted.
    Tcp,
    /// A GET of the path is answered with a status below 400.
    Http { path: String },
    /// `grpc.health.v1.Health/Check` of the service (empty: the whole server) says SERVING.
    Grpc { service: String },
}

impl HealthCheck {
    /// Reads `tcp://HOST:PORT`, `http://HOST:PORT/PATH` or `grpc://HOST:PORT[/SERVICE]`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const EXPECTED: &str =
            "expected tcp://HOST:PORT, http://HOST:PORT/PATH or grpc://HOST:PORT[/SERVICE]";
        let uri = InstanceUri::parse(text).map_err(|_| EXPECTED.to_owned())?;
        let parts = uri.parts();
        if !matches!(parts.scheme, "tcp" | "http" | "grpc") {
            return Err(format!(
                "{} is no kind of health check; {EXPECTED}",
                parts.scheme
            ));
        }
        let host = if parts.host.contains(':') {
            format!("[{}]", parts.host)
        } else {
            parts.host.to_owned()
        };
        let port = match (parts.port, parts.scheme) {
            (Some(port), _) => port,
            (None, "http") => 80,
            (None, _) => return Err(format!("has no port; {EXPECTED}")),
        };
        let rest = text.split_once("://").map_or("", |(_, rest)| rest);
        let path = rest.find('/').map_or("", |at| &rest[at..]);
        let probe = match parts.scheme {
            "tcp" => Probe::Tcp,
            "http" => Probe::Http {
                path: if path.is_empty() { "/" } else { path }.to_owned(),
            },
            _ => Probe::Grpc {
                service: path.trim_start_matches('/').to_owned(),
            },
        };
        Ok(Self {
            text: text.to_owned(),
            address: format!("{host}:{port}"),
            probe,
        })
    }

    /// As it was given.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Asks once.
    ///
    /// # Errors
    /// Why the server does not count as healthy, in a few words.
    pub(super) async fn ask(&self) -> Result<(), String> {
        let asked = async {
            match &self.probe {
                Probe::Tcp => match TcpStream::connect(&self.address).await {
                    Ok(_) => Ok(()),
                    Err(e) => Err(e.to_string()),
                },
                Probe::Http { path } => ask_http(&self.address, path).await,
                Probe::Grpc { service } => ask_grpc(&self.address, service).await,
            }
        };
        timeout(HEALTH_CHECK_MAX, asked).await.unwrap_or_else(|_| {
            let limit: Duration = HEALTH_CHECK_MAX;
            Err(format!("no answer within {} s", limit.as_secs()))
        })
    }
}

async fn ask_http(address: &str, path: &str) -> Result<(), String> {
    let response = admin::get(address, path, HEALTH_CHECK_MAX)
        .await
        .map_err(|e| e.to_string())?;
    let status = response.status();
    if status.is_success() || status.is_redirection() {
        Ok(())
    } else {
        Err(format!("answers {status}"))
    }
}

async fn ask_grpc(address: &str, service: &str) -> Result<(), String> {
    // A connection for each question: a server that accepts none is not healthy.
    let channel = connect_lazy(address, &ClientTls::default()).map_err(|e| e.to_string())?;
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let response = HealthClient::new(channel)
        .check(request)
        .await
        .map_err(|status| explain(&status))?;
    match response.into_inner().status() {
        ServingStatus::Serving => Ok(()),
        other => Err(format!("answers {}", other.as_str_name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_from_urls() {
        let cases = [
            ("tcp://127.0.0.1:5", "127.0.0.1:5", Probe::Tcp),
            (
                "http://[::1]:8080/ready?x=1",
                "[::1]:8080",
                Probe::Http {
                    path: "/ready?x=1".into(),
                },
            ),
            ("http://h", "h:80", Probe::Http { path: "/".into() }),
            (
                "grpc://h:1",
                "h:1",
                Probe::Grpc {
                    service: String::new(),
                },
            ),
            (
                "grpc://h:1/my.Service",
                "h:1",
                Probe::Grpc {
                    service: "my.Service".into(),
                },
            ),
        ];
        for (text, address, probe) in cases {
            let check = HealthCheck::parse(text).unwrap();
            assert_eq!(
                (check.address.as_str(), check.probe),
                (address, probe),
                "{text}"
            );
        }
        for bad in ["", "h:1", "tcp://h", "udp://h:1", "grpc://"] {
            assert!(HealthCheck::parse(bad).is_err(), "{bad}");
        }
    }
}
