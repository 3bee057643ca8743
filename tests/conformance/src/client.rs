//! One client for both variants, as far as cases can tell.

use std::collections::BTreeMap;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status as ErrorDetail;
use tonic::transport::Channel;
use waypost_testkit::probe::{DeltaProbe, SotwProbe, mk_node};

use crate::case::Variant;
use crate::target::Target;

/// What a response said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Type URL.
    pub type_url: String,
    /// Value by name.
    pub resources: BTreeMap<String, String>,
    /// Version by name (delta) or, under an empty name, of the whole (`SotW`).
    pub versions: BTreeMap<String, String>,
    /// Names removed, delta only.
    pub removed: Vec<String>,
    /// Its nonce.
    pub nonce: String,
}

/// A raw request.
#[derive(Clone, Debug, Default)]
pub struct RawRequest {
    /// Type URL.
    pub type_url: String,
    /// Subscribed, or in `SotW` all names.
    pub names: Vec<String>,
    /// Unsubscribed, delta only.
    pub unsubscribe: Vec<String>,
    /// Nonce.
    pub nonce: String,
    /// `version_info`, `SotW` only.
    pub version: String,
    /// `initial_resource_versions`, delta only.
    pub initial_versions: BTreeMap<String, String>,
    /// Text of a NACK.
    pub error: Option<String>,
}

/// A client of either variant.
pub enum Client {
    /// Incremental.
    Delta(Box<DeltaProbe>, Option<DeltaDiscoveryResponse>),
    /// State of the world.
    Sotw(Box<SotwProbe>, Option<DiscoveryResponse>),
}

impl Client {
    /// Opens a stream.
    ///
    /// # Errors
    /// It is refused; the error is the `tonic::Status`.
    pub async fn open(variant: Variant, channel: Channel, agent: &str) -> anyhow::Result<Self> {
        let node = mk_node(agent);
        Ok(match variant {
            Variant::Delta => Self::Delta(Box::new(DeltaProbe::open(channel, node).await?), None),
            Variant::Sotw => Self::Sotw(Box::new(SotwProbe::open(channel, node).await?), None),
        })
    }

    /// Adds subscriptions.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn subscribe(&mut self, type_url: &str, names: &[&str]) -> anyhow::Result<()> {
        match self {
            Self::Delta(probe, _) => probe.subscribe(type_url, names).await,
            Self::Sotw(probe, _) => probe.subscribe(type_url, names).await,
        }
    }

    /// Ends subscriptions.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn unsubscribe(&mut self, type_url: &str, names: &[&str]) -> anyhow::Result<()> {
        match self {
            Self::Delta(probe, _) => probe.unsubscribe(type_url, names).await,
            Self::Sotw(probe, _) => probe.unsubscribe(type_url, names).await,
        }
    }

    /// Sends a request as it is.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send(&mut self, raw: RawRequest) -> anyhow::Result<()> {
        let error_detail = raw.error.map(|message| ErrorDetail {
            code: 3,
            message,
            details: Vec::new(),
        });
        match self {
            Self::Delta(probe, _) => {
                probe
                    .send(DeltaDiscoveryRequest {
                        type_url: raw.type_url,
                        resource_names_subscribe: raw.names,
                        resource_names_unsubscribe: raw.unsubscribe,
                        initial_resource_versions: raw.initial_versions.into_iter().collect(),
                        response_nonce: raw.nonce,
                        error_detail,
                        ..DeltaDiscoveryRequest::default()
                    })
                    .await
            }
            Self::Sotw(probe, _) => {
                probe
                    .send(DiscoveryRequest {
                        version_info: raw.version,
                        resource_names: raw.names,
                        type_url: raw.type_url,
                        response_nonce: raw.nonce,
                        error_detail,
                        ..DiscoveryRequest::default()
                    })
                    .await
            }
        }
    }

    /// The next response.
    ///
    /// # Errors
    /// None came, or it is wrong in a way that no response may be.
    pub async fn receive(
        &mut self,
        target: &dyn Target,
        within: Duration,
    ) -> anyhow::Result<Received> {
        match self {
            Self::Delta(probe, last) => {
                let response = probe.receive(within).await?;
                let received = read_delta(target, &response);
                *last = Some(response);
                Ok(received)
            }
            Self::Sotw(probe, last) => {
                let response = probe.receive(within).await?;
                let received = read_sotw(target, &response)?;
                *last = Some(response);
                Ok(received)
            }
        }
    }

    /// Confirms the response last received.
    ///
    /// # Errors
    /// There is none, or the stream has ended.
    pub async fn ack(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Delta(probe, Some(last)) => probe.ack(last).await,
            Self::Sotw(probe, Some(last)) => probe.ack(last).await,
            Self::Delta(..) | Self::Sotw(..) => anyhow::bail!("no response to confirm"),
        }
    }

    /// Rejects the response last received.
    ///
    /// # Errors
    /// There is none, or the stream has ended.
    pub async fn nack(&mut self, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Delta(probe, Some(last)) => probe.nack(last, text).await,
            Self::Sotw(probe, Some(last)) => probe.nack(last, text).await,
            Self::Delta(..) | Self::Sotw(..) => anyhow::bail!("no response to reject"),
        }
    }

    /// Nothing comes for `window`.
    ///
    /// # Errors
    /// Something came.
    pub async fn expect_quiet(&mut self, window: Duration) -> anyhow::Result<()> {
        match self {
            Self::Delta(probe, _) => probe.expect_quiet(window).await,
            Self::Sotw(probe, _) => probe.expect_quiet(window).await,
        }
    }

    /// The server ends the stream.
    ///
    /// # Errors
    /// It does not.
    pub async fn expect_end(&mut self) -> anyhow::Result<tonic::Status> {
        match self {
            Self::Delta(probe, _) => probe.expect_end().await,
            Self::Sotw(probe, _) => probe.expect_end().await,
        }
    }

    /// A new stream that asks for everything again.
    ///
    /// # Errors
    /// It is refused.
    pub async fn reconnect(&mut self, with_versions: bool) -> anyhow::Result<()> {
        match self {
            Self::Delta(probe, _) => probe.reconnect(None, with_versions).await,
            Self::Sotw(probe, _) => probe.reconnect(None).await,
        }
    }

    /// A new stream that asks for nothing.
    ///
    /// # Errors
    /// It is refused.
    pub async fn reopen(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Delta(probe, _) => probe.reopen(None).await,
            Self::Sotw(probe, _) => probe.reopen(None).await,
        }
    }

    /// Version in use: of a resource (delta), or of the type.
    #[must_use]
    pub fn held_version(&self, type_url: &str, name: &str) -> String {
        match self {
            Self::Delta(probe, _) => probe.held(type_url).remove(name).unwrap_or_default(),
            Self::Sotw(probe, _) => probe.request(type_url).version_info,
        }
    }
}

fn read_delta(target: &dyn Target, response: &DeltaDiscoveryResponse) -> Received {
    let mut received = Received {
        type_url: response.type_url.clone(),
        removed: response.removed_resources.clone(),
        nonce: response.nonce.clone(),
        ..Received::default()
    };
    for resource in &response.resources {
        let payload = resource.resource.as_ref().map(|any| any.value.as_slice());
        let value = target.value_of(payload.unwrap_or_default());
        let (name, version) = (resource.name.clone(), resource.version.clone());
        received.resources.insert(name.clone(), value);
        received.versions.insert(name, version);
    }
    received
}

fn read_sotw(target: &dyn Target, response: &DiscoveryResponse) -> anyhow::Result<Received> {
    let mut received = Received {
        type_url: response.type_url.clone(),
        nonce: response.nonce.clone(),
        ..Received::default()
    };
    let version = response.version_info.clone();
    received.versions.insert(String::new(), version);
    for any in &response.resources {
        let name = target.name_of(&any.value);
        let value = target.value_of(&any.value);
        let before = received.resources.insert(name.clone(), value);
        anyhow::ensure!(before.is_none(), "{name} is in one response twice");
    }
    Ok(received)
}
