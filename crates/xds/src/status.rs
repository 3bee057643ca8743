//! How a stream ends: gRPC status codes and the headers that carry them.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue};

/// The gRPC status codes that the engine ends streams with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The client closed its side.
    Ok = 0,
    /// A request that cannot be read.
    InvalidArgument = 3,
    /// A bound was reached; its name is in the message.
    ResourceExhausted = 8,
    /// Compression, or a method that is not served.
    Unimplemented = 12,
    /// Not loaded, draining, or too slow: another Observer may do better.
    Unavailable = 14,
}

/// A code and a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code on the wire.
    pub code: Code,
    /// What is wrong and what to do.
    pub message: String,
}

impl Status {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Writes the status as `grpc-status` and `grpc-message`.
    pub(crate) fn put(&self, headers: &mut HeaderMap) {
        headers.insert("grpc-status", HeaderValue::from(self.code as u16));
        if self.message.is_empty() {
            return;
        }
        if let Ok(message) = HeaderValue::from_str(&percent_encoded(&self.message)) {
            headers.insert("grpc-message", message);
        }
    }
}

/// The encoding of `grpc-message`: printable ASCII but `%` as it is, every other byte as `%XX`
/// (gRPC over HTTP2, "Status-Message").
fn percent_encoded(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for byte in message.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_travel_percent_encoded() {
        let mut headers = HeaderMap::new();
        Status::new(Code::Unavailable, "50 % of é\n").put(&mut headers);
        assert_eq!(headers["grpc-status"], "14");
        assert_eq!(headers["grpc-message"], "50 %25 of %C3%A9%0A");
    }
}
