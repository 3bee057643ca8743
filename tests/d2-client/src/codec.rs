//! Resources of the D2 types: read, and judged as rest.li's client judges them.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use waypost_core::ResourceType;
use waypost_proto::indis;
use waypost_proto::indis::d2_cluster_or_service_name::Type;
use waypost_xds_client::{Codec, Rejection, TypeUrl};

use crate::names;

/// What is kept of a resource.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A document or the path of a symlink. An empty one is confirmed and of no use.
    Node(Bytes),
    /// All instances of a cluster.
    UriMap(Arc<indis::D2uriMap>),
    /// One instance.
    Uri(Arc<indis::D2uri>),
    /// A name of the directory.
    Name(Type),
    /// What an application calls.
    Callees(Arc<Vec<String>>),
}

/// Reads the five types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct D2Codec;

impl Codec for D2Codec {
    type Value = Value;

    fn decode(&self, type_url: &TypeUrl, name: &str, body: &Bytes) -> Result<Value, Rejection> {
        let body = body.clone();
        let unreadable = |e: prost::DecodeError| Rejection::new(format!("it cannot be read: {e}"));
        Ok(match type_url.resource_type() {
            Some(ResourceType::D2Node) => {
                Value::Node(indis::Node::decode(body).map_err(unreadable)?.data)
            }
            Some(ResourceType::D2UriMap) => {
                let map = indis::D2uriMap::decode(body).map_err(unreadable)?;
                Value::UriMap(Arc::new(map))
            }
            Some(ResourceType::D2Uri) => {
                if names::parse_instance(name).is_none() {
                    return Err(Rejection::new("its name is invalid"));
                }
                Value::Uri(Arc::new(indis::D2uri::decode(body).map_err(unreadable)?))
            }
            Some(ResourceType::D2ClusterOrServiceName) => {
                let message = indis::D2ClusterOrServiceName::decode(body).map_err(unreadable)?;
                let name = message.r#type.filter(|name| match name {
                    Type::ClusterName(name) | Type::ServiceName(name) => !name.is_empty(),
                });
                Value::Name(name.ok_or_else(|| Rejection::new("it names nothing"))?)
            }
            Some(ResourceType::D2CalleeServices) => {
                let callees = indis::D2CalleeServices::decode(body).map_err(unreadable)?;
                Value::Callees(Arc::new(callees.services))
            }
            _ => return Err(Rejection::new(format!("{type_url} is not asked for"))),
        })
    }
}
