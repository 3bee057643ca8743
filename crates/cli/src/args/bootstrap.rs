//! The flags of `waypost bootstrap`.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};

use super::{ConnectTlsArgs, LISTEN_DEFAULT, PlaceArgs};
use crate::values::{parse_authority, parse_gateway, parse_service};

#[derive(Debug, Args)]
pub(crate) struct BootstrapArgs {
    /// Which kind of client.
    pub(crate) client: ClientArg,
    /// The one name that resolves to all Observers, or the addresses of them all; https://HOST:PORT for TLS.
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', default_value = LISTEN_DEFAULT, value_parser = parse_gateway)]
    pub(crate) to: Vec<String>,
    #[command(flatten)]
    pub(crate) tls: ConnectTlsArgs,
    /// Names resources by gRPC's federation, xdstp://AUTHORITY/… (grpc). [default: none, by plain names]
    #[arg(long, value_name = "AUTHORITY", value_parser = parse_authority)]
    pub(crate) authority: Option<String>,
    /// How the client names itself to Observers. [default: the host name]
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) node_id: Option<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Which addresses of instances the client can use (grpc, envoy).
    #[arg(long, value_name = "FAMILIES", default_value = "both")]
    pub(crate) address_families: FamiliesArg,
    /// The services that Envoy routes to (envoy), or the one that the example calls (d2).
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "greeter",
        value_parser = parse_service
    )]
    pub(crate) service: Vec<String>,
    /// Where Envoy listens for calls to the services (envoy).
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10000")]
    pub(crate) proxy_listen: SocketAddr,
    /// Certificates of the authorities that Envoy verifies instances with: it speaks TLS to those whose
    /// URI says `https` or `grpcs` (envoy). [default: none, plain text]
    #[arg(long, value_name = "FILE")]
    pub(crate) upstream_ca: Option<String>,
    /// The certificate that Envoy shows to instances, with its chain (envoy). [default: none]
    #[arg(
        long,
        value_name = "FILE",
        requires = "upstream_key",
        requires = "upstream_ca"
    )]
    pub(crate) upstream_cert: Option<String>,
    /// The key of that certificate (envoy). [default: none]
    #[arg(long, value_name = "FILE", requires = "upstream_cert")]
    pub(crate) upstream_key: Option<String>,
    /// Which variant of xDS Envoy speaks (envoy).
    #[arg(long, value_name = "VARIANT", default_value = "delta")]
    pub(crate) protocol: ProtocolArg,
    /// A stream for each type instead of one for all (envoy). [default: off]
    #[arg(long)]
    pub(crate) per_type: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FamiliesArg {
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
    /// Both, IPv4 first.
    Both,
}

impl FamiliesArg {
    /// As the metadata of a node has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Both => "both",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolArg {
    /// Incremental.
    Delta,
    /// State of the world.
    Sotw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientArg {
    /// A bootstrap file for proxyless gRPC (GRPC_XDS_BOOTSTRAP).
    Grpc,
    /// A configuration file for Envoy.
    Envoy,
    /// Java code that builds a rest.li D2 client.
    D2,
}
