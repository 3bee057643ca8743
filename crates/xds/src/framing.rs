//! Cuts the bytes of a request body into gRPC messages.
//!
//! Source: gRPC over HTTP2, "Length-Prefixed-Message": one byte compressed flag, four bytes length,
//! big-endian, then the message.

use bytes::{Buf as _, Bytes, BytesMut};

/// Bytes before each message.
pub(crate) const PREFIX_BYTES: usize = 5;

/// What cannot be read as messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// The compressed flag is set; only `identity` was ever agreed to.
    #[error("compressed messages are not supported (grpc-encoding must be identity)")]
    Compressed,
    /// The flag is neither 0 nor 1.
    #[error("malformed gRPC frame: flag byte {0}")]
    Flag(u8),
    /// The announced length is over the bound.
    #[error("request of {bytes} bytes is over the limit of {max} (setting request_bytes_max)")]
    TooLarge {
        /// Announced length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
}

/// Collects bytes and gives out whole messages. A message that came in one piece is not copied.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    whole: Bytes,
    partial: BytesMut,
}

impl FrameReader {
    /// Takes the next bytes of the body. All messages of the bytes before must have been taken.
    pub(crate) fn push(&mut self, data: Bytes) {
        if self.partial.is_empty() && self.whole.is_empty() {
            self.whole = data;
        } else {
            self.partial.extend_from_slice(&self.whole);
            self.whole = Bytes::new();
            self.partial.extend_from_slice(&data);
        }
    }

    /// The next whole message, `None` when more bytes are needed.
    pub(crate) fn next_message(&mut self, bytes_max: usize) -> Result<Option<Bytes>, FrameError> {
        let available: &[u8] = if self.partial.is_empty() {
            &self.whole
        } else {
            &self.partial
        };
        let Some(&[flag, a, b, c, d]) = available.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        match flag {
            0 => {}
            1 => return Err(FrameError::Compressed),
            other => return Err(FrameError::Flag(other)),
        }
        let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        if bytes > bytes_max {
            return Err(FrameError::TooLarge {
                bytes,
                max: bytes_max,
            });
        }
        if available.len() < PREFIX_BYTES + bytes {
            return Ok(None);
        }
        Ok(Some(self.take(bytes)))
    }

    /// Whether the body may end here.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.partial.is_empty() && self.whole.is_empty()
    }

    fn take(&mut self, bytes: usize) -> Bytes {
        if self.partial.is_empty() {
            self.whole.advance(PREFIX_BYTES);
            let message = self.whole.split_to(bytes);
            if self.whole.is_empty() {
                self.whole = Bytes::new();
            }
            return message;
        }
        self.partial.advance(PREFIX_BYTES);
        let message = self.partial.split_to(bytes).freeze();
        // What is left goes on without the (possibly large) buffer of the partial message.
        self.whole = Bytes::copy_from_slice(&self.partial);
        self.partial = BytesMut::new();
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_frame(message: &[u8]) -> Vec<u8> {
        let mut frame = vec![0];
        frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(message);
        frame
    }

    #[test]
    fn messages_survive_every_way_of_cutting_the_bytes() {
        let messages: Vec<Vec<u8>> = vec![vec![], vec![1; 3], vec![2; 300], vec![3]];
        let bytes: Vec<u8> = messages.iter().flat_map(|m| mk_frame(m)).collect();
        for step in 1..=bytes.len() {
            let mut reader = FrameReader::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(step) {
                reader.push(Bytes::copy_from_slice(piece));
                while let Some(message) = reader.next_message(1000).unwrap() {
                    seen.push(message.to_vec());
                }
            }
            assert_eq!(seen, messages, "pieces of {step} bytes");
            assert!(reader.is_between_messages());
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_before_it_is_collected() {
        let cases = [
            (vec![1, 0, 0, 0, 1], FrameError::Compressed),
            (vec![7, 0, 0, 0, 1], FrameError::Flag(7)),
            (
                vec![0, 0, 0, 4, 1],
                FrameError::TooLarge {
                    bytes: 1025,
                    max: 1024,
                },
            ),
        ];
        for (bytes, error) in cases {
            let mut reader = FrameReader::default();
            reader.push(bytes.into());
            assert_eq!(reader.next_message(1024), Err(error));
        }
    }
}
