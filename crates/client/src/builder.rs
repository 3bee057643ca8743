//! How a client is made.

use std::path::PathBuf;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use waypost_tls::ClientTls;
use waypost_xds_client::{Driver, FallBack, Machine, Policy, ServerAddressError, ServerOrder};

use crate::client::Client;
use crate::codec::ListCodec;
use crate::file;

/// Which addresses a client can use; Observers send no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressFamilies {
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
    /// Both; of a server that has both, IPv4 is tried first.
    #[default]
    Both,
}

/// Why a client cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The list of servers cannot be used.
    #[error(transparent)]
    Server(#[from] ServerAddressError),
    /// The client's task needs a runtime to run on.
    #[error("there is no tokio runtime here; build the client inside one")]
    NoRuntime,
}

/// Settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    servers: Vec<String>,
    tls: ClientTls,
    policy: Policy,
    cache_file: Option<PathBuf>,
    node_id: Option<String>,
    application: String,
    address_families: AddressFamilies,
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            servers: Vec::new(),
            tls: ClientTls::default(),
            policy: Policy::waypost(),
            cache_file: None,
            node_id: None,
            application: String::new(),
            address_families: AddressFamilies::default(),
        }
    }

    /// Adds an Observer: `HOST:PORT`, its gRPC port; `https://HOST:PORT` if it is served by TLS. A name is
    /// resolved at each connection, so one name for all Observers will do as well as one call for each.
    #[must_use]
    pub fn server(mut self, address: impl Into<String>) -> Self {
        self.servers.push(address.into());
        self
    }

    /// Whom to believe and what to show at `https://` Observers, instead of believing the CAs that are installed
    /// on this machine and showing nothing. Files are read at each connection, so that renewed certificates are
    /// used; what is wrong with one is told by [`Client::health`] and a log line.
    #[must_use]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = tls;
        self
    }

    /// In which order Observers are tried. The default shuffles them once for each client, so that clients
    /// spread; [`ServerOrder::AsListed`] prefers the first.
    #[must_use]
    pub fn server_order(mut self, order: ServerOrder) -> Self {
        self.policy.server_order = order;
        self
    }

    /// Whether and how often a client that is not with its first Observer looks for it. The default stays
    /// where it is.
    #[must_use]
    pub fn fall_back(mut self, fall_back: FallBack) -> Self {
        self.policy.fall_back = fall_back;
        self
    }

    /// Where the last good lists are kept between runs. The folder must exist; each process needs a file
    /// of its own. Read by [`Self::build`], written within a second of a change.
    #[must_use]
    pub fn cache_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.cache_file = Some(path.into());
        self
    }

    /// The node id by which operators find this client on an Observer. The default has the process id.
    #[must_use]
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.node_id = Some(id.into());
        self
    }

    /// The application that calls, for operators.
    #[must_use]
    pub fn application(mut self, name: impl Into<String>) -> Self {
        self.application = name.into();
        self
    }

    /// Which addresses this process can use.
    #[must_use]
    pub fn address_families(mut self, families: AddressFamilies) -> Self {
        self.address_families = families;
        self
    }

    /// Makes the client and starts its task on the current tokio runtime. Nothing is waited for: an Observer
    /// that is not there yet is found when it is. A file that cannot be used is reported by
    /// [`Client::health`] and by a log line, and is no error.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(self) -> Result<Client, BuildError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(BuildError::NoRuntime);
        }
        let node = self.node();
        let seed = rand::random();
        let machine = Machine::new(self.policy, node, ListCodec, self.servers.len(), seed);
        let driver = Driver::new(machine, &self.servers)?.with_tls(self.tls);
        let kept = self.cache_file.as_deref().map(file::read);
        Ok(Client::spawn(driver, self.servers, self.cache_file, kept))
    }

    fn node(&self) -> Node {
        let default_id = || format!("waypost-client~{}", std::process::id());
        let families = match self.address_families {
            AddressFamilies::Ipv4 => "ipv4",
            AddressFamilies::Ipv6 => "ipv6",
            AddressFamilies::Both => "both",
        };
        let families = Value {
            kind: Some(Kind::StringValue(families.to_owned())),
        };
        let fields = [("waypost.address_families".to_owned(), families)];
        Node {
            id: self.node_id.clone().unwrap_or_else(default_id),
            cluster: self.application.clone(),
            metadata: Some(Struct {
                fields: fields.into(),
            }),
            user_agent_name: "waypost-client".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
                env!("CARGO_PKG_VERSION").to_owned(),
            )),
            // Weights and priorities are taken as they are.
            client_features: vec!["envoy.lb.does_not_support_overprovisioning".to_owned()],
            ..Node::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_said_at_once() {
        let error = ClientBuilder::new().server("h:1").build().unwrap_err();
        assert_eq!(error, BuildError::NoRuntime);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let error = ClientBuilder::new().build().unwrap_err();
        assert_eq!(error, BuildError::Server(ServerAddressError::None));
        let error = ClientBuilder::new().server("nowhere").build().unwrap_err();
        let expected = "bad server address \"nowhere\"; expected HOST:PORT or https://HOST:PORT, for example 127.0.0.1:18000";
        assert_eq!(error.to_string(), expected);
    }
}
