//! Names that people choose, parsed once at the edge and never raw strings afterwards.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::limits::{NAME_BYTES_MAX, URI_BYTES_MAX};
use crate::shared::Block;

/// Why a name or URI was not accepted. The text says what is wrong and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("{what} is empty")]
    Empty {
        /// Which kind of name.
        what: &'static str,
    },
    /// Longer than the bound.
    #[error("{what} is {bytes} bytes long; at most {max} are allowed")]
    TooLong {
        /// Which kind of name.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A character that names must not hold.
    #[error(
        "{what} {name:?} contains {character:?}; control characters, spaces, '/', '#' and a lone '*' are not allowed"
    )]
    Character {
        /// Which kind of name.
        what: &'static str,
        /// The name as given.
        name: String,
        /// The first offender.
        character: char,
    },
    /// Not a URI that D2 and gRPC clients can use.
    #[error(
        "bad URI {uri:?}: {why}; expected scheme://host:port[/path], for example grpc://10.0.0.1:8080"
    )]
    Uri {
        /// The text as given.
        uri: String,
        /// What is wrong with it.
        why: String,
    },
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and takes it as it is spelled.
            ///
            /// # Errors
            /// Empty, longer than [`NAME_BYTES_MAX`], or with a character that D2 paths, xDS names
            /// or the log's keys give a meaning of their own.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                check_name($what, text).map(|()| Self(text.into()))
            }

            /// The name as spelled.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The name of a D2 cluster: a set of instances that serve the same services.
    ClusterName,
    "cluster name"
);
name_type!(
    /// The name of a D2 service: what a client calls; it points at one cluster.
    ServiceName,
    "service name"
);

name_type!(
    /// The name of an application: what its D2 clients and proxies say that they belong to.
    ApplicationName,
    "application name"
);

/// Whether a cluster of this name is a symlink: its document is the path of another cluster, and it has
/// no instances of its own (rest.li `SymlinkUtil`).
#[must_use]
pub fn is_symlink(cluster: &str) -> bool {
    cluster.starts_with('$')
}

fn check_name(what: &'static str, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { what });
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong {
            what,
            bytes: name.len(),
            max: NAME_BYTES_MAX,
        });
    }
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || c == '/' || c == '#';
    let offender = if name == "*" {
        Some('*')
    } else {
        name.chars().find(|c| forbidden(*c))
    };
    match offender {
        Some(character) => Err(NameError::Character {
            what,
            name: name.to_owned(),
            character,
        }),
        None => Ok(()),
    }
}

/// The URI that an instance announces. Its spelling is kept and served verbatim, since D2 clients
/// compare and sort host strings (d2 subsetting).
///
/// A handle of one word. One that an [`InstanceValue`](crate::InstanceValue) gave out keeps the
/// whole value alive, see [`Self::without_value`].
#[derive(Clone)]
pub struct InstanceUri(Block);

impl InstanceUri {
    /// Checks that `text` is an absolute RFC 3986 URI with a host, and takes it as spelled.
    ///
    /// # Errors
    /// Not a URI, no scheme, no host, a user part, or longer than [`URI_BYTES_MAX`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let bad = |why: &str| NameError::Uri {
            uri: text.to_owned(),
            why: why.to_owned(),
        };
        if text.is_empty() {
            return Err(NameError::Empty { what: "URI" });
        }
        if text.len() > URI_BYTES_MAX {
            return Err(NameError::TooLong {
                what: "URI",
                bytes: text.len(),
                max: URI_BYTES_MAX,
            });
        }
        let uri = fluent_uri::Uri::parse(text).map_err(|e| bad(&e.to_string()))?;
        let authority = uri
            .authority()
            .ok_or_else(|| bad("it has no //host part"))?;
        if authority.host().is_empty() {
            return Err(bad("its host is empty"));
        }
        if authority.userinfo().is_some() {
            return Err(bad("it has a user part"));
        }
        if authority.port_to_u16().is_err() {
            return Err(bad("its port is not a number below 65536"));
        }
        Ok(Self(Block::of_uri(text)))
    }

    /// The URI as spelled.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // It was text when it was parsed, so there is no other case.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Its bytes, for comparing: they cost less than the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.uri()
    }

    /// The same URI, keeping nothing else alive: for whoever remembers it longer than the instance.
    #[must_use]
    pub fn without_value(self) -> Self {
        Self(self.0.without_value())
    }

    /// The URI in a block that was made of one.
    pub(crate) fn of_block(block: Block) -> Self {
        Self(block)
    }

    /// Scheme, host (IPv6 literals without brackets) and port (absent when not spelled out).
    #[must_use]
    pub fn parts(&self) -> UriParts<'_> {
        let text = self.as_str();
        let scheme_end = text.find(':').unwrap_or(0);
        let rest = text[scheme_end..].trim_start_matches("://");
        let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
        let (host, port) = match authority.strip_prefix('[').and_then(|a| a.split_once(']')) {
            Some((host, after)) => (host, after.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        UriParts {
            scheme: &text[..scheme_end],
            host,
            port: port.and_then(|p| p.parse().ok()),
        }
    }
}

/// The pieces of an [`InstanceUri`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UriParts<'a> {
    /// For example `grpc`, `http`, `https`.
    pub scheme: &'a str,
    /// Host name or IP literal; an IPv6 literal has no brackets.
    pub host: &'a str,
    /// The port where one is spelled out.
    pub port: Option<u16>,
}

impl UriParts<'_> {
    /// The port, or the scheme's well-known one (443 for `https` and `grpcs`, else 80).
    #[must_use]
    pub fn port_or_default(&self) -> u16 {
        self.port.unwrap_or(match self.scheme {
            "https" | "grpcs" => 443,
            _ => 80,
        })
    }
}

impl PartialEq for InstanceUri {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for InstanceUri {}

impl PartialOrd for InstanceUri {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of texts is that of their bytes.
impl Ord for InstanceUri {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for InstanceUri {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for InstanceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for InstanceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl std::borrow::Borrow<str> for InstanceUri {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// What identifies an instance in the log: its cluster and its URI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    /// The cluster that it belongs to.
    pub cluster: ClusterName,
    /// The URI that it announces.
    pub uri: InstanceUri,
}

impl InstanceKey {
    /// The record key: cluster, one zero byte, URI (docs/announcement-log.md, "Records").
    #[must_use]
    pub fn to_record_key(&self) -> bytes::Bytes {
        let uri = self.uri.as_bytes();
        let mut key = Vec::with_capacity(self.cluster.0.len() + 1 + uri.len());
        key.extend_from_slice(self.cluster.0.as_bytes());
        key.push(0);
        key.extend_from_slice(uri);
        key.into()
    }

    /// Reads a record key.
    ///
    /// # Errors
    /// Not UTF-8, no zero byte, or a part that is not a valid name or URI.
    pub fn from_record_key(key: &[u8]) -> Result<Self, NameError> {
        let bad = |why: &str| NameError::Uri {
            uri: String::from_utf8_lossy(key).into_owned(),
            why: why.to_owned(),
        };
        let text = std::str::from_utf8(key).map_err(|_| bad("the record key is not UTF-8"))?;
        let (cluster, uri) = text
            .split_once('\0')
            .ok_or_else(|| bad("the record key has no zero byte"))?;
        Ok(Self {
            cluster: ClusterName::parse(cluster)?,
            uri: InstanceUri::parse(uri)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_that_no_client_could_use_are_refused_with_a_reason() {
        for bad in [
            "",
            "greeter",
            "grpc:x",
            "grpc://",
            "grpc://h:99999",
            "http://u@h:1",
            "a b://c",
        ] {
            assert!(InstanceUri::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn uri_parts_are_read_from_every_spelling_of_a_host() {
        let cases = [
            ("grpc://127.0.0.1:50051", ("grpc", "127.0.0.1", Some(50051))),
            (
                "https://h-1.example.net/alpha?x#y",
                ("https", "h-1.example.net", None),
            ),
            (
                "http://[2001:db8::5]:8080/x",
                ("http", "2001:db8::5", Some(8080)),
            ),
            ("http://[::1]", ("http", "::1", None)),
        ];
        for (text, (scheme, host, port)) in cases {
            let uri = InstanceUri::parse(text).unwrap();
            assert_eq!(uri.parts(), UriParts { scheme, host, port }, "{text}");
            assert_eq!(uri.as_str(), text);
        }
    }

    #[test]
    fn record_keys_round_trip_and_malformed_ones_are_refused() {
        let key = InstanceKey {
            cluster: ClusterName::parse("Größe.$x%-_").unwrap(),
            uri: InstanceUri::parse("http://h:1/a").unwrap(),
        };
        assert_eq!(InstanceKey::from_record_key(&key.to_record_key()), Ok(key));
        for bad in [
            &b""[..],
            b"a",
            b"\xff\0http://h:1",
            b"a\0nope",
            b"\0http://h:1",
            b"a/b\0http://h:1",
        ] {
            assert!(InstanceKey::from_record_key(bad).is_err(), "{bad:?}");
        }
    }
}
