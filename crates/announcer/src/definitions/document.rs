//! The D2 document that is stored and served byte for byte.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{DefinitionInput, symlink};

/// `loadBalancerStrategyList` of a service that names none. A D2 client rejects a document without
/// it; of the list it takes the first name that it knows, so both of the strategies that every
/// release has are listed, the newer first (rest.li `ServicePropertiesJsonSerializer`,
/// `SimpleLoadBalancerState`).
pub const STRATEGY_LIST_DEFAULT: [&str; 2] = ["relative", "degrader"];

/// `prioritizedSchemes` of a service that names none. Without it a D2 client chooses no host at
/// all; schemes are tried in order, so plain HTTP serves where nothing is announced for HTTPS
/// (rest.li `SimpleLoadBalancer`).
pub const PRIORITIZED_SCHEMES_DEFAULT: [&str; 2] = ["https", "http"];

/// Names first, then the properties in the order in which they were written, then the defaults that
/// D2 clients insist on. Equal input gives equal bytes; numbers keep their spelling.
pub(super) fn to_document(input: &DefinitionInput) -> Bytes {
    let mut document = Map::new();
    let mut put = |key: &str, value: &str| {
        document.insert(key.to_owned(), Value::String(value.to_owned()));
    };
    match input {
        DefinitionInput::Symlink { target, .. } => return symlink::to_document(target),
        DefinitionInput::Callees { .. } => return Bytes::new(),
        DefinitionInput::Cluster { name, properties } => {
            put("clusterName", name.as_str());
            put_properties(&mut document, properties);
        }
        DefinitionInput::Service {
            name,
            cluster,
            path,
            properties,
        } => {
            put("serviceName", name.as_str());
            put("clusterName", cluster.as_str());
            put("path", path);
            put_properties(&mut document, properties);
            put_default(
                &mut document,
                "loadBalancerStrategyList",
                &STRATEGY_LIST_DEFAULT,
            );
            put_default(
                &mut document,
                "prioritizedSchemes",
                &PRIORITIZED_SCHEMES_DEFAULT,
            );
        }
    }
    Value::Object(document).to_string().into()
}

/// The names are in already (`check` refuses any that differ); a null stands for an absent property,
/// as D2's own writers leave it out.
fn put_properties(document: &mut Map<String, Value>, properties: &Map<String, Value>) {
    for (key, value) in properties {
        if !value.is_null() && !document.contains_key(key) {
            document.insert(key.clone(), value.clone());
        }
    }
}

fn put_default(document: &mut Map<String, Value>, key: &str, values: &[&str]) {
    document
        .entry(key)
        .or_insert_with(|| values.iter().map(|v| Value::from(*v)).collect());
}
