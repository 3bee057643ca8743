//! What a resource means: decided by whoever uses the engine.

use bytes::Bytes;

use crate::limits::REASON_CHARS_MAX;
use crate::name::TypeUrl;

/// Why a resource is not used, for people: it goes to the server and into its log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Rejection(String);

impl Rejection {
    /// A reason; what is over [`REASON_CHARS_MAX`] is cut.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        let reason: String = reason.into();
        match reason.char_indices().nth(REASON_CHARS_MAX) {
            Some((end, _)) => Self(reason[..end].to_owned()),
            None => Self(reason),
        }
    }
}

/// Reads and judges resources.
pub trait Codec {
    /// What is kept of a resource. Cloned for each event: a handle if it is large.
    type Value: Clone + std::fmt::Debug;

    /// Reads the body (the payload of the `Any`) of a resource.
    ///
    /// # Errors
    /// It cannot be used. The response is refused with the reason and what was held stays.
    fn decode(
        &self,
        type_url: &TypeUrl,
        name: &str,
        body: &Bytes,
    ) -> Result<Self::Value, Rejection>;
}

/// Takes everything as it comes: for clients that confirm whatever they are sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawCodec;

impl Codec for RawCodec {
    type Value = Bytes;

    fn decode(&self, _: &TypeUrl, _: &str, body: &Bytes) -> Result<Bytes, Rejection> {
        Ok(body.clone())
    }
}
