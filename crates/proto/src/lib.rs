//! Generated messages, and the only mapping between what is on the wire and `waypost-core`.

pub mod announcement;
pub mod config;
pub mod definition;
pub mod encoded;

/// Messages and services of `waypost.v1`: the log's values and the gateway.
#[expect(
    missing_docs,
    clippy::too_many_lines,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the .proto files are documented"
)]
pub mod v1 {
    tonic::include_proto!("waypost.v1");
}

/// Messages of the rest.li D2 wire form.
#[expect(missing_docs, reason = "generated code; the .proto file is documented")]
pub mod indis {
    tonic::include_proto!("indis");
}

/// The descriptors of every message and service here, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
