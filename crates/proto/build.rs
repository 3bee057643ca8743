//! Compiles the `.proto` files in pure Rust: no `protoc` is needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "proto/waypost/v1/announcement.proto",
        "proto/waypost/v1/config.proto",
        "proto/waypost/v1/gateway.proto",
        "proto/waypost/v1/snapshot.proto",
        "proto/indis/indis.proto",
    ];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Maps are encoded in key order, so that equal content is equal bytes on every replica.
    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
