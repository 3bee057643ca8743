//! Addresses of the API. Names are percent-encoded here and nowhere else.

use crate::BASE;

/// [`crate::Status`].
#[must_use]
pub fn status() -> String {
    format!("{BASE}/status")
}

/// A [`crate::Page`] of [`crate::ClusterSummary`].
#[must_use]
pub fn clusters() -> String {
    format!("{BASE}/clusters")
}

/// One [`crate::ClusterView`].
#[must_use]
pub fn cluster(name: &str) -> String {
    format!("{BASE}/clusters/{}", encoded(name))
}

/// A [`crate::Page`] of [`crate::ServiceView`].
#[must_use]
pub fn services() -> String {
    format!("{BASE}/services")
}

/// One [`crate::ServiceView`].
#[must_use]
pub fn service(name: &str) -> String {
    format!("{BASE}/services/{}", encoded(name))
}

/// A [`crate::Page`] of [`crate::CalleesView`].
#[must_use]
pub fn callees() -> String {
    format!("{BASE}/callees")
}

/// The [`crate::CalleesView`] of one application.
#[must_use]
pub fn callees_of(application: &str) -> String {
    format!("{BASE}/callees/{}", encoded(application))
}

/// A [`crate::Page`] of [`crate::UriView`].
#[must_use]
pub fn uris(cluster: &str) -> String {
    format!("{BASE}/uris/{}", encoded(cluster))
}

/// A [`crate::Page`] of [`crate::StreamView`].
#[must_use]
pub fn streams() -> String {
    format!("{BASE}/streams")
}

/// The [`crate::Digests`].
#[must_use]
pub fn digests() -> String {
    format!("{BASE}/digests")
}

/// The [`crate::BucketDigests`] of a partition after the tick at an offset.
#[must_use]
pub fn bucket_digests(partition: u32, offset: i64) -> String {
    format!("{BASE}/digests/{partition}?offset={offset}")
}

/// One page of the [`crate::BucketKeys`] of a bucket of a partition, from the first one or after
/// a cursor.
#[must_use]
pub fn bucket_keys(partition: u32, bucket: usize, after: Option<&str>) -> String {
    let path = format!("{BASE}/digests/{partition}/keys?bucket={bucket}");
    match after {
        Some(cursor) => format!("{path}&after={}", encoded(cursor)),
        None => path,
    }
}

/// The [`crate::OperatorView`] of the fleet, or of what concerns one cluster.
#[must_use]
pub fn operator(cluster: Option<&str>) -> String {
    match cluster {
        Some(name) => format!("{BASE}/operator?cluster={}", encoded(name)),
        None => format!("{BASE}/operator"),
    }
}

/// A stream of [`crate::WatchEvent`] lines.
#[must_use]
pub fn watch(cluster: &str) -> String {
    format!("{BASE}/watch/{}", encoded(cluster))
}

/// The [`crate::ConfigDump`].
#[must_use]
pub fn config_dump() -> String {
    "/config_dump".to_owned()
}

/// The query that asks for the page after `cursor`.
#[must_use]
pub fn after(cursor: &str) -> String {
    format!("?after={}", encoded(cursor))
}

/// Percent-encodes everything but RFC 3986 unreserved characters.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_so_that_no_name_changes_the_path() {
        assert_eq!(uris("a b/é?"), "/api/v1/uris/a%20b%2F%C3%A9%3F");
        assert_eq!(cluster("Greeter.v1~x-_"), "/api/v1/clusters/Greeter.v1~x-_");
        assert_eq!(after("grpc://h:1"), "?after=grpc%3A%2F%2Fh%3A1");
        assert_eq!(operator(Some("a&b")), "/api/v1/operator?cluster=a%26b");
    }
}
