//! An instance's URI and its announcement in one allocation, which fold, store and whoever is told
//! of it share: of a fleet of millions every byte counts, and an announcement holds its URI anyway.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use triomphe::ThinArc;

use crate::limits::URI_BYTES_MAX;
use crate::name::InstanceUri;

/// Immutable bytes behind one word: the count of their handles, this head and the bytes stand in
/// one allocation.
#[derive(Clone)]
pub(crate) struct Block(ThinArc<Head, u8>);

/// Where the parts stand.
#[derive(Clone, Copy)]
struct Head {
    uri_start: u16,
    uri_len: u16,
    /// To the end. A block without a value has an empty one.
    value_start: u16,
}

impl Block {
    /// Holds a URI of at most [`URI_BYTES_MAX`] bytes, and no value.
    pub(crate) fn of_uri(uri: &str) -> Self {
        let len = to_u16(uri.len());
        let head = Head {
            uri_start: 0,
            uri_len: len,
            value_start: len,
        };
        Self(ThinArc::from_header_and_slice(head, uri.as_bytes()))
    }

    fn of_value(uri: &[u8], value: &[u8]) -> Self {
        let uri_len = to_u16(uri.len());
        match find(value, uri).and_then(|start| u16::try_from(start).ok()) {
            Some(uri_start) => {
                let head = Head {
                    uri_start,
                    uri_len,
                    value_start: 0,
                };
                Self(ThinArc::from_header_and_slice(head, value))
            }
            None => {
                let head = Head {
                    uri_start: 0,
                    uri_len,
                    value_start: uri_len,
                };
                Self(ThinArc::from_header_and_slice(head, &[uri, value].concat()))
            }
        }
    }

    /// The bytes of the URI.
    pub(crate) fn uri(&self) -> &[u8] {
        let head = self.0.header.header;
        let start = usize::from(head.uri_start);
        &self.0.slice[start..start + usize::from(head.uri_len)]
    }

    fn value(&self) -> &[u8] {
        &self.0.slice[usize::from(self.0.header.header.value_start)..]
    }

    /// A block of the URI alone.
    pub(crate) fn without_value(self) -> Self {
        if self.value().is_empty() {
            return self;
        }
        Self::of_uri(std::str::from_utf8(self.uri()).unwrap_or_default())
    }

    fn is_same(&self, other: &Self) -> bool {
        self.0.ptr() == other.0.ptr()
    }
}

/// The bytes of an accepted announcement. Its clones, and the [`InstanceUri`]s that it gives out,
/// share one allocation.
#[derive(Clone)]
pub struct InstanceValue(Block);

impl InstanceValue {
    /// A copy of `value`, the announcement of the instance `uri`. Of the URI no copy is made if it
    /// stands somewhere in `value`, as it does in the message of `announcement.proto`.
    #[must_use]
    pub fn new(uri: &InstanceUri, value: &[u8]) -> Self {
        Self(Block::of_value(uri.as_bytes(), value))
    }

    /// The URI that it was made with.
    #[must_use]
    pub fn uri(&self) -> InstanceUri {
        InstanceUri::of_block(self.0.clone())
    }

    /// The bytes of that URI, for comparing.
    #[must_use]
    pub fn uri_bytes(&self) -> &[u8] {
        self.0.uri()
    }

    /// The same bytes for those who know nothing of instances; they are not copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl Deref for InstanceValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.value()
    }
}

impl AsRef<[u8]> for InstanceValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for InstanceValue {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_same(&other.0) || **self == **other
    }
}

impl Eq for InstanceValue {}

impl fmt::Debug for InstanceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().fmt(f)
    }
}

/// Where `part` stands in `whole`.
fn find(whole: &[u8], part: &[u8]) -> Option<usize> {
    whole.windows(part.len()).position(|window| window == part)
}

/// Of a length that is bounded by [`URI_BYTES_MAX`].
fn to_u16(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

// Three million values are held, each by the fold and by the store.
const _: () = assert!(size_of::<InstanceValue>() == 8 && size_of::<Option<InstanceUri>>() == 8);
const _: () = assert!(URI_BYTES_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_gives_out_its_uri_wherever_that_stands() {
        let uri = InstanceUri::parse("http://h:1/a").unwrap();
        let text = uri.as_str();
        let far = format!("{}{text}", " ".repeat(70_000));
        let cases = [
            text.to_owned(),
            format!("before {text} after"),
            "elsewhere".to_owned(),
            String::new(),
            far,
        ];
        for bytes in cases {
            let value = InstanceValue::new(&uri, bytes.as_bytes());
            assert_eq!(&*value, bytes.as_bytes());
            assert_eq!(value.uri(), uri);
            assert_eq!(value.uri().as_str(), text);
            assert_eq!(value.to_bytes(), bytes.as_bytes());
            assert_eq!(value.uri().without_value(), uri);
        }
    }

    #[test]
    fn values_are_equal_by_their_bytes_alone() {
        let [a, b] = ["http://a:1", "http://b:1"].map(|uri| InstanceUri::parse(uri).unwrap());
        assert_eq!(InstanceValue::new(&a, b"x"), InstanceValue::new(&b, b"x"));
        assert_ne!(InstanceValue::new(&a, b"x"), InstanceValue::new(&a, b"y"));
    }
}
