//! One message as a list of byte strings: private parts of a stream and parts that many share.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// A message in the order of its parts. Writing it copies nothing.
#[derive(Debug, Default)]
pub struct MessageBuf {
    /// The part being written.
    first: Bytes,
    /// The next one: most responses are a head and one resource, which need no list.
    second: Bytes,
    /// All others, the next one last.
    rest: Vec<Bytes>,
    remaining: usize,
}

impl MessageBuf {
    /// A message of one part.
    #[must_use]
    pub fn single(part: Bytes) -> Self {
        Self::new(part, std::iter::empty())
    }

    /// A message of `head` and then `parts`.
    pub(crate) fn new(head: Bytes, parts: impl IntoIterator<Item = Bytes>) -> Self {
        let mut parts = parts.into_iter();
        let second = parts.next().unwrap_or_default();
        let mut rest: Vec<Bytes> = parts.collect();
        rest.reverse();
        let remaining = head.len() + second.len() + rest.iter().map(Bytes::len).sum::<usize>();
        let mut buf = Self {
            first: head,
            second,
            rest,
            remaining,
        };
        buf.skip_empty();
        buf
    }

    fn skip_empty(&mut self) {
        while self.first.is_empty() && (!self.second.is_empty() || !self.rest.is_empty()) {
            self.first = std::mem::replace(&mut self.second, self.rest.pop().unwrap_or_default());
        }
    }
}

impl Buf for MessageBuf {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "advance past the end");
        self.remaining -= count;
        while count > 0 {
            let step = count.min(self.first.len());
            self.first.advance(step);
            count -= step;
            self.skip_empty();
        }
        self.skip_empty();
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = [&self.first, &self.second]
            .into_iter()
            .chain(self.rest.iter().rev())
            .filter(|part| !part.is_empty());
        let mut filled = 0;
        for (slot, part) in slices.iter_mut().zip(parts) {
            *slot = IoSlice::new(part);
            filled += 1;
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_buf(parts: &[&'static str]) -> MessageBuf {
        let mut parts = parts.iter().map(|p| Bytes::from_static(p.as_bytes()));
        MessageBuf::new(parts.next().unwrap(), parts)
    }

    #[test]
    fn the_bytes_are_the_parts_in_order_however_they_are_read() {
        for parts in [
            &["a"][..],
            &["", "bc"],
            &["a", "bc"],
            &["ab", "", "c", "", "", "defg", ""],
            &[""],
        ] {
            let whole = parts.concat();
            for step in 1..=whole.len().max(1) {
                let mut buf = mk_buf(parts);
                let mut read = Vec::new();
                while buf.has_remaining() {
                    let mut slices = [IoSlice::new(&[]); 16];
                    let count = buf.chunks_vectored(&mut slices);
                    let vectored: Vec<u8> =
                        slices[..count].iter().flat_map(|s| s.to_vec()).collect();
                    assert_eq!(vectored.len(), buf.remaining());
                    assert!(!buf.chunk().is_empty());
                    let take = step.min(buf.remaining());
                    read.extend_from_slice(&vectored[..take]);
                    buf.advance(take);
                }
                assert_eq!(read, whole.as_bytes(), "{parts:?} by {step}");
            }
        }
    }
}
