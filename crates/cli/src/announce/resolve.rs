//! Host name and addresses of the instance, as far as this machine knows them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::net::lookup_host;
use tokio::time::timeout;
use waypost_core::InstanceUri;

use crate::limits::RESOLVE_MAX;

/// At most one address of each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) v4: Option<Ipv4Addr>,
    pub(super) v6: Option<Ipv6Addr>,
}

impl Addresses {
    /// From `--address`.
    pub(super) fn from_flags(flags: &[IpAddr]) -> Result<Self, String> {
        let mut addresses = Self::default();
        for flag in flags {
            let taken = match flag {
                IpAddr::V4(ip) => addresses.v4.replace(*ip).is_some(),
                IpAddr::V6(ip) => addresses.v6.replace(*ip).is_some(),
            };
            if taken {
                return Err(format!(
                    "--address {flag}: give one address for IPv4 and one for IPv6 at most"
                ));
            }
        }
        Ok(addresses)
    }

    /// The first address of each family, in the resolver's order.
    fn first_of(found: impl Iterator<Item = IpAddr>) -> Self {
        let mut addresses = Self::default();
        for ip in found {
            match ip {
                IpAddr::V4(ip) => addresses.v4 = addresses.v4.or(Some(ip)),
                IpAddr::V6(ip) => addresses.v6 = addresses.v6.or(Some(ip)),
            }
        }
        addresses
    }
}

/// The host of the URI if it is a name, else this machine's name.
pub(super) fn hostname(uri: &InstanceUri) -> String {
    let host = uri.parts().host;
    if host.parse::<IpAddr>().is_ok() {
        gethostname::gethostname().to_string_lossy().into_owned()
    } else {
        host.to_owned()
    }
}

/// Looks the host of the URI up; a literal is its own answer.
///
/// # Errors
/// The name has no address, or nobody answered in time. The instance can be announced all the same:
/// Observers resolve what has no address.
pub(super) async fn lookup(uri: &InstanceUri) -> Result<Addresses, String> {
    let parts = uri.parts();
    if let Ok(ip) = parts.host.parse::<IpAddr>() {
        return Ok(Addresses::first_of([ip].into_iter()));
    }
    let asked = timeout(
        RESOLVE_MAX,
        lookup_host((parts.host, parts.port_or_default())),
    );
    match asked.await {
        Ok(Ok(found)) => Ok(Addresses::first_of(found.map(|a| a.ip()))),
        Ok(Err(e)) => Err(format!("cannot resolve {}: {e}", parts.host)),
        Err(_) => Err(format!(
            "cannot resolve {}: no answer within {} s",
            parts.host,
            RESOLVE_MAX.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn literals_need_no_resolver_and_names_are_looked_up() {
        let cases = [
            ("grpc://10.0.0.7:1", Some("10.0.0.7"), None),
            ("grpc://[2001:db8::5]:1", None, Some("2001:db8::5")),
        ];
        for (uri, v4, v6) in cases {
            let uri = InstanceUri::parse(uri).unwrap();
            let found = lookup(&uri).await.unwrap();
            assert_eq!(found.v4, v4.map(|ip| ip.parse().unwrap()));
            assert_eq!(found.v6, v6.map(|ip| ip.parse().unwrap()));
            assert_ne!(hostname(&uri), uri.parts().host);
        }
        let uri = InstanceUri::parse("grpc://localhost:1").unwrap();
        assert_ne!(lookup(&uri).await.unwrap(), Addresses::default());
        assert_eq!(hostname(&uri), "localhost");
        let uri = InstanceUri::parse("grpc://nobody.invalid:1").unwrap();
        assert!(lookup(&uri).await.unwrap_err().contains("nobody.invalid"));
    }

    #[test]
    fn one_address_of_each_family_may_be_given() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let both = Addresses::from_flags(&[ip("10.0.0.1"), ip("::1")]).unwrap();
        assert!(both.v4.is_some() && both.v6.is_some());
        assert!(Addresses::from_flags(&[ip("10.0.0.1"), ip("10.0.0.2")]).is_err());
    }
}
