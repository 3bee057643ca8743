//! The requests of both variants, as far as the engine reads them. A node is kept as bytes, since
//! only the first one of a stream is looked at and some clients send theirs every time.
//!
//! Source: data-plane-api `envoy/service/discovery/v3/discovery.proto`.

use std::collections::HashMap;

use bytes::Bytes;

/// `DeltaDiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeltaRequest {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) node: Option<Bytes>,
    #[prost(string, tag = "2")]
    pub(crate) type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) resource_names_unsubscribe: Vec<String>,
    #[prost(map = "string, string", tag = "5")]
    pub(crate) initial_resource_versions: HashMap<String, String>,
    #[prost(string, tag = "6")]
    pub(crate) response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) error_detail: Option<ErrorDetail>,
}

/// `DiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SotwRequest {
    #[prost(string, tag = "1")]
    pub(crate) version_info: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) node: Option<Bytes>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub(crate) error_detail: Option<ErrorDetail>,
}

/// `google.rpc.Status`, less its details.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ErrorDetail {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// A request of either variant.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Delta(DeltaRequest),
    Sotw(SotwRequest),
}

impl Request {
    pub(crate) fn type_url(&self) -> &str {
        match self {
            Self::Delta(request) => &request.type_url,
            Self::Sotw(request) => &request.type_url,
        }
    }

    pub(crate) fn take_node(&mut self) -> Option<Bytes> {
        match self {
            Self::Delta(request) => request.node.take(),
            Self::Sotw(request) => request.node.take(),
        }
    }

    pub(crate) fn response_nonce(&self) -> &str {
        match self {
            Self::Delta(request) => &request.response_nonce,
            Self::Sotw(request) => &request.response_nonce,
        }
    }

    pub(crate) fn error_detail(&self) -> Option<&ErrorDetail> {
        match self {
            Self::Delta(request) => request.error_detail.as_ref(),
            Self::Sotw(request) => request.error_detail.as_ref(),
        }
    }
}
