//! Requests, encoded by hand from parts that are made once: an ACK is the most frequent thing a load
//! sends. Field numbers are those of `envoy.service.discovery.v3`.

use super::plan::{Kind, clusters_of};
use super::response::{Response, Variant};
use super::wire::put_bytes;

/// The encoded names of all clusters in one kind, as both variants spell them in a request: field 3.
#[derive(Debug)]
pub(super) struct Names {
    kind: Kind,
    by_cluster: Vec<Box<[u8]>>,
    /// One more name of every stream; empty for none.
    absent: Vec<u8>,
    names_per_stream: usize,
}

/// Field numbers that differ between the variants.
struct Numbers {
    node: u8,
    type_url: u8,
    nonce: u8,
}

const NAMES: u8 = 3;

impl Names {
    pub(super) fn new(kind: Kind, clusters: usize, names_per_stream: usize) -> Self {
        let encoded = |cluster| encoded(&kind.name_of(cluster)).into_boxed_slice();
        Self {
            kind,
            by_cluster: (0..clusters).map(encoded).collect(),
            absent: Vec::new(),
            names_per_stream,
        }
    }

    /// As it is, and every stream subscribes to a name that nothing has too. A server answers at once
    /// that it does not exist, and so says that it serves the stream, even where it has nothing to send.
    pub(super) fn with_absent(self) -> Self {
        Self {
            absent: encoded(self.kind.absent_name()),
            ..self
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    fn put(&self, stream: usize, out: &mut Vec<u8>) {
        for cluster in clusters_of(stream, self.names_per_stream, self.by_cluster.len()) {
            out.extend_from_slice(&self.by_cluster[cluster]);
        }
        out.extend_from_slice(&self.absent);
    }
}

fn encoded(name: &str) -> Vec<u8> {
    let mut field = Vec::new();
    put_bytes(&mut field, NAMES, name.as_bytes());
    field
}

/// The first request of a stream, with what the client holds from before (delta only): names and
/// versions.
pub(super) fn put_first<'a>(
    out: &mut Vec<u8>,
    variant: Variant,
    names: &Names,
    stream: usize,
    held: impl Iterator<Item = (&'a str, &'a str)>,
) {
    let numbers = variant.numbers();
    put_bytes(out, numbers.node, &node(stream));
    put_bytes(out, numbers.type_url, names.kind.type_url().as_bytes());
    names.put(stream, out);
    if variant == Variant::Delta {
        const INITIAL_RESOURCE_VERSIONS: u8 = 5;
        let mut entry = Vec::new();
        for (name, version) in held {
            entry.clear();
            put_bytes(&mut entry, 1, name.as_bytes());
            put_bytes(&mut entry, 2, version.as_bytes());
            put_bytes(out, INITIAL_RESOURCE_VERSIONS, &entry);
        }
    }
}

/// The ACK of a response. In state of the world it repeats all names, since a name that is left out
/// is unsubscribed.
pub(super) fn put_ack(
    out: &mut Vec<u8>,
    variant: Variant,
    names: &Names,
    stream: usize,
    response: &Response<'_>,
) {
    const VERSION_INFO: u8 = 1;
    let numbers = variant.numbers();
    if variant == Variant::Sotw {
        put_bytes(out, VERSION_INFO, response.version);
        names.put(stream, out);
    }
    put_bytes(out, numbers.type_url, names.kind.type_url().as_bytes());
    put_bytes(out, numbers.nonce, response.nonce);
}

impl Variant {
    fn numbers(self) -> Numbers {
        match self {
            Self::Delta => Numbers {
                node: 1,
                type_url: 2,
                nonce: 6,
            },
            Self::Sotw => Numbers {
                node: 2,
                type_url: 4,
                nonce: 5,
            },
        }
    }
}

/// `envoy.config.core.v3.Node`: id and cluster, a few dozen bytes; Envoy's own takes kilobytes.
fn node(stream: usize) -> Vec<u8> {
    let mut node = Vec::new();
    put_bytes(&mut node, 1, format!("load-{stream}").as_bytes());
    put_bytes(&mut node, 2, b"load");
    node
}
