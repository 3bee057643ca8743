//! A sink that writes through the gateway of an Observer.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt as _};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use waypost_core::record::{Appended, Delivery};
use waypost_core::{Offset, PartitionId, Timestamp};
use waypost_proto::v1 as pb;
use waypost_proto::v1::append_progress::Event;
use waypost_proto::v1::append_request::Kind;
use waypost_proto::v1::gateway_client::GatewayClient;
use waypost_proto::v1::refused::Cause;
use waypost_tls::{ClientTls, ServerAddress};

use super::{InstanceRecord, Receipt, Sink, SinkError, Verdict};
use crate::limits::{GATEWAY_ANSWER_MAX, GATEWAY_CONNECT_MAX, GATEWAY_KEEPALIVE};

/// A gateway address that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayAddressError {
    /// No address was given.
    #[error("no gateway address is given; expected HOST:PORT, for example 127.0.0.1:18000")]
    None,
    /// Not an address.
    #[error(
        "bad gateway address {0:?}; expected HOST:PORT or https://HOST:PORT, for example 127.0.0.1:18000"
    )]
    Bad(String),
}

/// Writes through one of several gateways: the one that answered last, and the others in turn when
/// it does not. Who does not answer loses no instance: a broken stream is no withdrawal.
#[derive(Debug)]
pub struct GatewaySink {
    gateways: Vec<Gateway>,
    /// Which one is tried first.
    current: AtomicUsize,
}

#[derive(Debug)]
struct Gateway {
    address: String,
    client: GatewayClient<Channel>,
}

/// Why one gateway did not do it.
struct Failure {
    error: SinkError,
    /// Whether no other gateway would do it either.
    is_final: bool,
}

impl GatewaySink {
    /// A sink over gateways at these addresses: `HOST:PORT`, or `https://HOST:PORT` by TLS, of which the
    /// certificates must be of a CA that is installed on this machine. Connects when first needed, on the current
    /// tokio runtime.
    ///
    /// # Errors
    /// No address, or one that is not of its form.
    pub fn new<A: AsRef<str>>(addresses: &[A]) -> Result<Self, GatewayAddressError> {
        Self::with_tls(addresses, &ClientTls::default())
    }

    /// As [`GatewaySink::new`], with other certificates than the default for `https://` addresses.
    ///
    /// # Errors
    /// No address, or one that is not of its form. Certificates are read when they are needed.
    pub fn with_tls<A: AsRef<str>>(
        addresses: &[A],
        tls: &ClientTls,
    ) -> Result<Self, GatewayAddressError> {
        let gateways: Vec<_> = addresses
            .iter()
            .map(|address| Gateway::new(address.as_ref(), tls))
            .collect::<Result<_, _>>()?;
        if gateways.is_empty() {
            return Err(GatewayAddressError::None);
        }
        Ok(Self {
            gateways,
            current: AtomicUsize::new(0),
        })
    }
}

#[async_trait]
impl Sink for GatewaySink {
    async fn append(&self, record: InstanceRecord) -> Result<Receipt, SinkError> {
        let request = mk_request(record);
        let count = self.gateways.len();
        let first = self.current.load(Ordering::Relaxed);
        let mut errors = Vec::with_capacity(count);
        for index in (0..count).map(|i| (first + i) % count) {
            match self.gateways[index].append(request.clone()).await {
                Ok(receipt) => return Ok(receipt),
                Err(failure) if failure.is_final => return Err(failure.error),
                Err(failure) => errors.push(failure.error),
            }
            // Only who found the current one broken moves on, so that many instances that fail
            // together move once.
            let next = (index + 1) % count;
            let _ =
                self.current
                    .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Err(merge(&errors))
    }
}

impl Gateway {
    fn new(address: &str, tls: &ClientTls) -> Result<Self, GatewayAddressError> {
        let channel = connect_lazy(address, tls)?;
        Ok(Self {
            address: address.to_owned(),
            client: GatewayClient::new(channel),
        })
    }

    async fn append(&self, request: pb::AppendRequest) -> Result<Receipt, Failure> {
        let wants_verdict = request.until_served;
        let answer = async {
            let mut client = self.client.clone();
            let mut progress = client.append(request).await?.into_inner();
            let first = progress.message().await?;
            Ok::<_, tonic::Status>((first, progress))
        };
        let (first, progress) = match timeout(GATEWAY_ANSWER_MAX, answer).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(status)) => return Err(self.mk_failure(&status)),
            Err(_) => {
                let seconds = GATEWAY_ANSWER_MAX.as_secs();
                return Err(self.mk_unavailable(&format!("no answer within {seconds} s")));
            }
        };
        match first.and_then(|p| p.event) {
            Some(Event::Appended(appended)) => Ok(Receipt {
                appended: read_appended(&appended),
                verdict: wants_verdict.then(|| read_verdict(progress)),
            }),
            Some(Event::Refused(refused)) => Err(Failure {
                error: SinkError::Refused(format!("gateway {}: {}", self.address, refused.reason)),
                is_final: true,
            }),
            Some(Event::Served(_)) | None => {
                Err(self.mk_unavailable("the stream ended before the log had the record"))
            }
        }
    }

    fn mk_unavailable(&self, why: &str) -> Failure {
        Failure {
            error: SinkError::Unavailable(format!("gateway {}: {why}", self.address)),
            is_final: false,
        }
    }

    fn mk_failure(&self, status: &tonic::Status) -> Failure {
        let text = format!("gateway {}: {}", self.address, explain(status));
        let (error, is_final) = match status.code() {
            Code::InvalidArgument => (SinkError::Refused(text), true),
            Code::FailedPrecondition
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented => (SinkError::Refused(text), false),
            _ => (SinkError::Unavailable(text), false),
        };
        Failure { error, is_final }
    }
}

/// A channel to one address that connects when first used and finds out when the other side died.
///
/// # Errors
/// The address is of neither form: `HOST:PORT`, or `https://HOST:PORT` by `tls`.
pub fn connect_lazy(address: &str, tls: &ClientTls) -> Result<Channel, GatewayAddressError> {
    let bad = || GatewayAddressError::Bad(address.to_owned());
    let endpoint = ServerAddress::parse(address).and_then(|address| address.to_endpoint());
    let endpoint = endpoint
        .map_err(|_| bad())?
        .connect_timeout(GATEWAY_CONNECT_MAX)
        .http2_keep_alive_interval(GATEWAY_KEEPALIVE)
        .keep_alive_timeout(GATEWAY_KEEPALIVE)
        .keep_alive_while_idle(true);
    Ok(waypost_tls::connect_lazy(&endpoint, tls))
}

/// The text of a gRPC status with the cause that transports hide behind it.
#[must_use]
pub fn explain(status: &tonic::Status) -> String {
    let mut cause = status.source();
    while let Some(deeper) = cause.and_then(|c| c.source()) {
        cause = Some(deeper);
    }
    match cause {
        Some(cause) if !status.message().contains(&cause.to_string()) => {
            format!("{}: {cause}", status.message())
        }
        _ if status.message().is_empty() => status.code().to_string(),
        _ => status.message().to_owned(),
    }
}

fn mk_request(record: InstanceRecord) -> pb::AppendRequest {
    let kind = match (&record.value, record.delivery) {
        (None, _) => Kind::Withdraw,
        (Some(_), Delivery::Heartbeat) => Kind::Heartbeat,
        (Some(_), _) => Kind::Announce,
    };
    pb::AppendRequest {
        kind: kind.into(),
        cluster: record.key.cluster.as_str().to_owned(),
        uri: record.key.uri.as_str().to_owned(),
        announcement: record.value.unwrap_or_default(),
        id: record.headers.id.map(|id| id.0),
        birth_ms: record.headers.birth.map(|b| b.0),
        age_ms: record.headers.age_ms,
        seq: record.headers.seq,
        until_served: record.wants_verdict,
    }
}

fn read_appended(appended: &pb::Appended) -> Appended {
    Appended {
        partition: PartitionId(appended.partition),
        offset: Offset(appended.offset),
        append_time: appended.append_time_ms.map(Timestamp),
    }
}

fn read_verdict(mut progress: Streaming<pb::AppendProgress>) -> BoxFuture<'static, Verdict> {
    async move {
        match progress.message().await {
            Ok(Some(message)) => match message.event {
                Some(Event::Served(_)) => Verdict::Served,
                Some(Event::Refused(refused)) if refused.cause() == Cause::Withdrawn => {
                    Verdict::Withdrawn(refused.reason)
                }
                Some(Event::Refused(refused)) => Verdict::Refused(refused.reason),
                Some(Event::Appended(_)) | None => {
                    Verdict::Unknown("the gateway said something unexpected".to_owned())
                }
            },
            Ok(None) => Verdict::Unknown("the gateway ended the stream".to_owned()),
            Err(status) => Verdict::Unknown(explain(&status)),
        }
    }
    .boxed()
}

/// Refused only if every gateway refuses.
fn merge(errors: &[SinkError]) -> SinkError {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let text = texts.join("; ");
    if errors.iter().all(|e| matches!(e, SinkError::Refused(_))) {
        SinkError::Refused(text)
    } else {
        SinkError::Unavailable(text)
    }
}
