//! Keys and values out of buffers of a client library or a store, which are not to be kept alive by what is
//! read: copied, many into one allocation.

use bytes::{Bytes, BytesMut};

use crate::limits::COPIES_CHUNK_BYTES;

/// Makes copies. Each keeps its chunk alive, so who keeps one for long copies it again.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    chunk: BytesMut,
}

impl Copies {
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if self.chunk.capacity() < bytes.len() {
            self.chunk = BytesMut::with_capacity(COPIES_CHUNK_BYTES.max(bytes.len()));
        }
        self.chunk.extend_from_slice(bytes);
        self.chunk.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_size_are_what_was_copied() {
        let mut copies = Copies::default();
        let sizes = [0, 1, 300, COPIES_CHUNK_BYTES, COPIES_CHUNK_BYTES + 1, 7];
        let originals: Vec<Vec<u8>> = (0..).zip(sizes).map(|(n, size)| vec![n; size]).collect();
        let copied: Vec<Bytes> = originals.iter().map(|bytes| copies.copy(bytes)).collect();
        assert_eq!(copied, originals);
    }

    #[test]
    fn many_small_ones_are_one_allocation() {
        let mut copies = Copies::default();
        let (first, second) = (copies.copy(b"key"), copies.copy(b"value"));
        assert_eq!(first.as_ptr().wrapping_add(3), second.as_ptr());
    }
}
