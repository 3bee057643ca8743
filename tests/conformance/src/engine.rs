//! The engine over a map, on a port of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::Empty;
use waypost_core::{ClientKind, EncodedResource, ResourceLocator, ResourceType, Timestamp};
use waypost_proto::encoded::encode_resource;
use waypost_xds::memory::MemoryLocator;
use waypost_xds::{
    AdsServer, AdsSettings, EndpointsOnReconnect, IgnoreEvents, ListenSettings, Listener, Serving,
};

use crate::target::Target;

/// Parts of a payload: `NAME`, `VALUE`, padding.
const SEPARATOR: u8 = b'\n';

/// A server that serves what it is told to.
pub struct EngineTarget {
    locator: Arc<MemoryLocator>,
    server: AdsServer,
    serving: Serving,
}

impl EngineTarget {
    /// Starts one with the settings of a case.
    ///
    /// # Errors
    /// A setting is unknown, or no port could be opened.
    pub fn start(with: &[(String, String)]) -> anyhow::Result<Self> {
        let mut settings = AdsSettings::new("conformance");
        let mut listen = ListenSettings {
            threads: Some(1),
            ..ListenSettings::default()
        };
        for (name, value) in with {
            set(&mut settings, &mut listen, name, value)
                .with_context(|| format!("{name}={value}"))?;
        }
        let locator = Arc::new(MemoryLocator::default());
        let port = Arc::clone(&locator) as Arc<dyn ResourceLocator>;
        let server = AdsServer::new(port, settings, Arc::new(IgnoreEvents));
        let listener = Listener::bind(([127, 0, 0, 1], 0).into())?;
        let serving = listener.serve(server.clone(), tower::service_fn(not_found), listen)?;
        Ok(Self {
            locator,
            server,
            serving,
        })
    }

    /// The map that it serves.
    #[must_use]
    pub fn locator(&self) -> &MemoryLocator {
        &self.locator
    }

    /// The server, for a look at its streams.
    #[must_use]
    pub fn server(&self) -> &AdsServer {
        &self.server
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.serving.connections()
    }

    /// Goes down as an Observer does.
    pub async fn shut_down(self, drain: Duration) {
        self.serving.shut_down(drain).await;
    }
}

async fn not_found(
    _request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Empty<Bytes>>, std::convert::Infallible> {
    let mut response = http::Response::new(Empty::new());
    let headers = response.headers_mut();
    headers.insert(
        "content-type",
        http::HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-status", http::HeaderValue::from_static("12"));
    Ok(response)
}

fn set(
    settings: &mut AdsSettings,
    listen: &mut ListenSettings,
    name: &str,
    value: &str,
) -> anyhow::Result<()> {
    let millis = || anyhow::Ok(Duration::from_millis(value.parse()?));
    match name {
        "response_bytes_max" => settings.response_bytes_max = value.parse()?,
        "request_bytes_max" => settings.request_bytes_max = value.parse()?,
        "streams_max" => settings.streams_max = value.parse()?,
        "names_per_stream_max" => settings.names_per_stream_max = value.parse()?,
        "first_request_timeout_ms" => settings.first_request_timeout = millis()?,
        "stall_timeout_ms" => settings.stall_timeout = millis()?,
        "removal_hold_ms" => settings.removal_hold = millis()?,
        "connection_age_max_ms" => listen.connection_age_max = Some(millis()?),
        "streams_per_connection_max" => listen.streams_per_connection_max = value.parse()?,
        "legacy_wildcard_off" => {
            settings.legacy_wildcard = settings.legacy_wildcard.without(type_named(value)?);
        }
        "endpoints_on_reconnect" if value == "trust" => {
            settings.endpoints_on_reconnect = EndpointsOnReconnect::TrustVersions;
        }
        _ => bail!("no such setting"),
    }
    Ok(())
}

/// The type of a word of the cases.
///
/// # Errors
/// No type has it.
pub fn type_named(word: &str) -> anyhow::Result<ResourceType> {
    Ok(match word {
        "cds" => ResourceType::Cluster,
        "eds" => ResourceType::ClusterLoadAssignment,
        "lds" => ResourceType::Listener,
        "rds" => ResourceType::RouteConfiguration,
        "node" => ResourceType::D2Node,
        "urimap" => ResourceType::D2UriMap,
        "uri" => ResourceType::D2Uri,
        "name" => ResourceType::D2ClusterOrServiceName,
        "callees" => ResourceType::D2CalleeServices,
        other => bail!("{other:?} is no type"),
    })
}

fn encode(resource_type: ResourceType, name: &str, value: &str, bytes: usize) -> EncodedResource {
    let mut payload = [
        name.as_bytes(),
        &[SEPARATOR],
        value.as_bytes(),
        &[SEPARATOR],
    ]
    .concat();
    payload.resize(payload.len().max(bytes), b'.');
    encode_resource(resource_type, name, &payload, Timestamp(1))
}

fn part(payload: &[u8], index: usize) -> String {
    let part = payload.split(|byte| *byte == SEPARATOR).nth(index);
    String::from_utf8_lossy(part.unwrap_or_default()).into_owned()
}

impl Target for EngineTarget {
    fn address(&self) -> String {
        self.serving.local_addr().to_string()
    }

    fn set(
        &self,
        resource_type: ResourceType,
        name: &str,
        value: &str,
        bytes: usize,
    ) -> anyhow::Result<()> {
        let resource = encode(resource_type, name, value, bytes);
        self.locator.set(resource_type, name, resource);
        Ok(())
    }

    fn set_for(
        &self,
        client: ClientKind,
        resource_type: ResourceType,
        name: &str,
        value: &str,
    ) -> anyhow::Result<()> {
        let resource = encode(resource_type, name, value, 0);
        self.locator
            .set_for_client(resource_type, name, client, resource);
        Ok(())
    }

    fn remove(&self, resource_type: ResourceType, name: &str) -> anyhow::Result<()> {
        self.locator.remove(resource_type, name);
        Ok(())
    }

    fn set_endpoints_name(&self, cluster: &str, endpoints: &str) -> anyhow::Result<()> {
        self.locator.set_endpoints_name(cluster, endpoints);
        Ok(())
    }

    fn touch(&self, resource_type: ResourceType, name: &str) -> anyhow::Result<()> {
        self.locator.touch(resource_type, name);
        Ok(())
    }

    fn forget_removed(&self) -> anyhow::Result<()> {
        self.locator.forget_removed();
        Ok(())
    }

    fn set_not_loaded(&self, why: Option<&str>) -> anyhow::Result<()> {
        self.locator.set_not_loaded(why);
        Ok(())
    }

    fn value_of(&self, payload: &[u8]) -> String {
        part(payload, 1)
    }

    fn name_of(&self, payload: &[u8]) -> String {
        part(payload, 0)
    }
}
