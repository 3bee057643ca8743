//! Names of resources as rest.li's client spells and reads them (rest.li `XdsToD2PropertiesAdaptor`,
//! `GlobCollectionUtils`).

/// Where documents of clusters are, and their symlinks.
pub(crate) const CLUSTERS: &str = "/d2/clusters/";
/// Where documents of services are.
pub(crate) const SERVICES: &str = "/d2/services/";
/// Where maps of instances are, and their symlinks.
pub(crate) const URIS: &str = "/d2/uris/";
/// Where collections of instances are.
const URI_COLLECTIONS: &str = "xdstp:///indis.D2URI/";

/// What never exists and is watched all the same: rest.li learns of its connection by it.
pub(crate) const NON_EXISTENT_CLUSTER: &str = "NonExistentCluster";

/// Whether rest.li takes a cluster for a symlink: by a `$` anywhere in its name.
pub(crate) fn is_symlink(cluster: &str) -> bool {
    cluster.contains('$')
}

/// The glob of a cluster's instances.
pub(crate) fn glob(cluster: &str) -> String {
    format!("{URI_COLLECTIONS}{cluster}/*")
}

/// One instance, in the spelling of Java's `URLEncoder`.
pub(crate) fn instance(cluster: &str, uri: &str) -> String {
    let mut name = format!("{URI_COLLECTIONS}{cluster}/");
    name.extend(form_urlencoded::byte_serialize(uri.as_bytes()));
    name
}

/// Cluster and URI of an instance's name, or cluster and `*` of a glob's; `None` where rest.li calls the
/// name invalid.
pub(crate) fn parse_instance(name: &str) -> Option<(&str, String)> {
    let (cluster, segment) = name.strip_prefix(URI_COLLECTIONS)?.rsplit_once('/')?;
    let is_hex = |pair: &[u8]| pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
    let bytes = segment.as_bytes();
    let mut escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if !escapes.all(|(at, _)| bytes.get(at + 1..at + 3).is_some_and(is_hex)) {
        return None;
    }
    // The whole segment is the value of a form field that has no name.
    let field = format!("={segment}");
    let field = field.replace('&', "%26");
    let (_, uri) = form_urlencoded::parse(field.as_bytes()).next()?;
    Some((cluster, uri.into_owned()))
}

/// What a symlink points to: the text after the last slash of its path.
pub(crate) fn symlink_target(data: &[u8]) -> String {
    let path = String::from_utf8_lossy(data);
    let target = path.rsplit('/').next().unwrap_or_default();
    target.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_spelled_as_java_spells_them_and_read_in_any_spelling() {
        for (uri, segment) in [
            (
                "https://h-1.example.net:8443/a",
                "https%3A%2F%2Fh-1.example.net%3A8443%2Fa",
            ),
            (
                "http://h_2:80/~bob/a*b",
                "http%3A%2F%2Fh_2%3A80%2F%7Ebob%2Fa*b",
            ),
            ("a b+c%d&e=f", "a+b%2Bc%25d%26e%3Df"),
            ("é", "%C3%A9"),
        ] {
            let name = format!("xdstp:///indis.D2URI/C.$-/{segment}");
            assert_eq!(instance("C.$-", uri), name);
            assert_eq!(parse_instance(&name), Some(("C.$-", uri.to_owned())));
        }
        let go = "xdstp:///indis.D2URI/c/~%2a";
        assert_eq!(parse_instance(go), Some(("c", "~*".to_owned())));
        assert_eq!(parse_instance(&glob("c")), Some(("c", "*".to_owned())));
        let plain = "xdstp:///indis.D2URI/c/a&b=c";
        assert_eq!(parse_instance(plain), Some(("c", "a&b=c".to_owned())));
        for bad in [
            "xdstp:///indis.D2URI/c",
            "x",
            "xdstp:///indis.D2URI/c/%G1",
            "xdstp:///indis.D2URI/c/%1",
        ] {
            assert_eq!(parse_instance(bad), None, "{bad}");
        }
    }

    #[test]
    fn of_a_symlink_the_last_part_of_its_path_counts() {
        assert_eq!(symlink_target(b"/d2/clusters/Alpha-east"), "Alpha-east");
        assert_eq!(symlink_target(b"Alpha"), "Alpha");
    }
}
