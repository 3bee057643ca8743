//! `waypost bootstrap grpc|envoy|d2`: a client configuration ready to use.
//!
//! One name, many Observers. gRPC also takes a *list* of `xds_servers`, but that list is a fallback,
//! not a choice: a client goes to the next entry only while something it wants is missing from its
//! cache, and stays with a dead first entry as long as its cache is full (gRFC A71). So it would
//! learn of no change after its Observer died. One name that resolves to all of them has no such
//! rule: the channel reconnects to another address at once.
//!
//! A list of addresses as one target (`ipv4:A,B`) is no way out: only gRPCs on C-core know it, and
//! they send the list as `:authority`, for which an HTTP/2 server ends the stream (PROTOCOL_ERROR).

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use waypost_observer::render::server::SERVER_PREFIX;

use crate::args::{BootstrapArgs, ClientArg, FamiliesArg, ProtocolArg, is_tls};
use crate::exit::{Exit, Failure};
use crate::output::print_line;

pub(crate) fn run(args: &BootstrapArgs) -> Result<Exit, Failure> {
    let is_tls = is_tls(&args.to[0]);
    if args.to.iter().any(|to| crate::args::is_tls(to) != is_tls) {
        return Err(Failure::usage(
            "--to: either all addresses begin with https:// or none does",
        ));
    }
    let plain = |to: &String| to.trim_start_matches("https://").to_owned();
    let observers = Observers::parse(&args.to.iter().map(plain).collect::<Vec<_>>())?;
    let tls = match is_tls {
        true => Some(Tls::read(args)?),
        false if args.tls.is_given() => {
            return Err(Failure::usage(
                "--to: --tls-… is for addresses that begin with https://; to this one the client would speak \
                 without TLS",
            ));
        }
        false => None,
    };
    let node_id = args
        .node_id
        .clone()
        .unwrap_or_else(|| gethostname::gethostname().to_string_lossy().into_owned());
    let text = match args.client {
        ClientArg::Grpc => grpc(&observers, &node_id, tls.as_ref(), args)?,
        ClientArg::Envoy => envoy(&observers, &node_id, tls.as_ref(), args),
        ClientArg::D2 => d2(&observers, &node_id, tls.as_ref(), args)?,
    };
    print_line(text.trim_end())?;
    Ok(Exit::Done)
}

/// What a client is told of TLS: files that are on its machine.
struct Tls {
    ca: Option<String>,
    identity: Option<(String, String)>,
    server_name: Option<String>,
}

impl Tls {
    fn read(args: &BootstrapArgs) -> Result<Self, Failure> {
        let show = |path: &std::path::Path| path.display().to_string();
        let identity = args.tls.identity()?;
        Ok(Self {
            ca: args.tls.tls_ca.as_deref().map(show),
            identity: identity.map(|files| (show(&files.certificate), show(&files.key))),
            server_name: args.tls.tls_server_name.clone(),
        })
    }

    /// Channel credentials of gRPC (gRFC A65). The files are read again by the client.
    fn grpc_credentials(&self) -> Value {
        let mut config = json!({ "refresh_interval": "60s" });
        if let Some(ca) = &self.ca {
            config["ca_certificate_file"] = ca.as_str().into();
        }
        if let Some((certificate, key)) = &self.identity {
            config["certificate_file"] = certificate.as_str().into();
            config["private_key_file"] = key.as_str().into();
        }
        json!({ "type": "tls", "config": config })
    }

    /// Envoy's transport socket, for the cluster of Observers at `host`.
    fn envoy_socket(&self, host: Option<&str>) -> Value {
        let name = self.server_name.as_deref().or(host);
        let mut validation = json!({
            "trusted_ca": { "filename": self.ca.as_deref().unwrap_or(SYSTEM_CAS) },
        });
        if let Some(name) = name {
            let san_type = match name.parse::<IpAddr>() {
                Ok(_) => "IP_ADDRESS",
                Err(_) => "DNS",
            };
            validation["match_typed_subject_alt_names"] =
                json!([{ "san_type": san_type, "matcher": { "exact": name } }]);
        }
        let mut common = json!({ "alpn_protocols": ["h2"], "validation_context": validation });
        if let Some((certificate, key)) = &self.identity {
            common["tls_certificates"] = json!([{
                "certificate_chain": { "filename": certificate },
                "private_key": { "filename": key },
            }]);
        }
        let mut context = json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": common,
        });
        if let Some(name) = name.filter(|name| name.parse::<IpAddr>().is_err()) {
            context["sni"] = name.into();
        }
        json!({ "name": "envoy.transport_sockets.tls", "typed_config": context })
    }
}

/// Where all Observers are.
enum Observers {
    /// A name that the resolver of the client turns into all their addresses.
    Name(String, u16),
    /// The addresses themselves, all of one family.
    Addresses(Vec<SocketAddr>),
}

impl Observers {
    fn parse(to: &[String]) -> Result<Self, Failure> {
        let addresses: Vec<_> = to.iter().filter_map(|a| a.parse().ok()).collect();
        if addresses.len() == to.len() && !addresses.is_empty() {
            let first_is_v4 = matches!(&addresses[0], SocketAddr::V4(_));
            if addresses.iter().any(|a| a.is_ipv4() != first_is_v4) {
                return Err(Failure::usage(
                    "--to: give either IPv4 or IPv6 addresses; a DNS name can have both",
                ));
            }
            return Ok(Self::Addresses(addresses));
        }
        let [name] = to else {
            return Err(Failure::usage(
                "--to: give one DNS name that resolves to all Observers, or the IP addresses of them \
                 all; of several names a client would use the first (gRFC A71)",
            ));
        };
        let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
        let port = port
            .parse()
            .map_err(|_| Failure::usage("--to: expected HOST:PORT"))?;
        Ok(Self::Name(host.to_owned(), port))
    }

    /// The target as gRPC names it (gRPC name resolution: `dns`).
    fn grpc_target(&self) -> Result<String, Failure> {
        match self {
            Self::Name(host, port) => Ok(format!("dns:///{host}:{port}")),
            Self::Addresses(addresses) => match &addresses[..] {
                [address] => Ok(format!("dns:///{address}")),
                _ => Err(Failure::usage(
                    "--to: a gRPC client takes no list of addresses as one server; give one DNS name \
                     that resolves to all Observers",
                )),
            },
        }
    }

    /// Envoy's kind of cluster, and its endpoints.
    fn envoy_endpoints(&self) -> (&'static str, Vec<(String, u16)>) {
        match self {
            Self::Name(host, port) => ("STRICT_DNS", vec![(host.clone(), *port)]),
            Self::Addresses(addresses) => {
                let list = addresses.iter().map(|a| (a.ip().to_string(), a.port()));
                ("STATIC", list.collect())
            }
        }
    }
}

/// The bootstrap file of proxyless gRPC (gRFC A27, "xDS Client Bootstrap"), for its clients and its servers
/// (gRFC A36).
fn grpc(
    observers: &Observers,
    node_id: &str,
    tls: Option<&Tls>,
    args: &BootstrapArgs,
) -> Result<String, Failure> {
    if tls.is_some_and(|tls| tls.server_name.is_some()) {
        return Err(Failure::usage(
            "--tls-server-name: a gRPC bootstrap file has no room for it; name Observers by what their \
             certificate is for",
        ));
    }
    let credentials = tls.map_or_else(|| json!({ "type": "insecure" }), Tls::grpc_credentials);
    let mut bootstrap = json!({
        "xds_servers": [{
            "server_uri": observers.grpc_target()?,
            "channel_creds": [credentials],
            "server_features": ["xds_v3"],
        }],
        "node": node(node_id, args),
        "server_listener_resource_name_template": format!("{SERVER_PREFIX}%s"),
    });
    if let Some(authority) = &args.authority {
        // Plain targets are of this authority, too (gRFC A47).
        let listeners = format!("xdstp://{authority}/envoy.config.listener.v3.Listener");
        let listener = format!("{listeners}/%s");
        bootstrap["authorities"] =
            json!({ authority.as_str(): { "client_listener_resource_name_template": listener } });
        bootstrap["client_default_listener_resource_name_template"] = listener.into();
        bootstrap["server_listener_resource_name_template"] =
            format!("{listeners}/{SERVER_PREFIX}%s").into();
    }
    serde_json::to_string_pretty(&bootstrap).map_err(|e| Failure::failed(e.to_string()))
}

fn node(node_id: &str, args: &BootstrapArgs) -> Value {
    let mut node = json!({ "id": node_id });
    if !args.place.fabric.is_empty() || !args.place.zone.is_empty() {
        node["locality"] = json!({ "region": args.place.fabric, "zone": args.place.zone });
    }
    if args.address_families != FamiliesArg::Both {
        node["metadata"] = json!({ "waypost.address_families": args.address_families.as_str() });
    }
    node
}

/// A configuration file of Envoy: clusters by CDS, the listener by LDS, its routes and all endpoints as
/// those say.
fn envoy(observers: &Observers, node_id: &str, tls: Option<&Tls>, args: &BootstrapArgs) -> String {
    let (kind, endpoints) = observers.envoy_endpoints();
    let quote = |text: &str| Value::from(text).to_string();
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|(host, port)| {
            format!(
                "        - endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {port} }} }} }}",
                quote(host)
            )
        })
        .collect();
    let sources = if args.per_type {
        ENVOY_PER_TYPE
    } else {
        ENVOY_AGGREGATED
    };
    let api_type = match args.protocol {
        ProtocolArg::Delta => "DELTA_GRPC",
        ProtocolArg::Sotw => "GRPC",
    };
    let host = match observers {
        Observers::Name(host, _) => Some(host.clone()),
        Observers::Addresses(addresses) => match &addresses[..] {
            [address] => Some(address.ip().to_string()),
            // Each is to have a certificate of the CA; a name that all have is told by --tls-server-name.
            _ => None,
        },
    };
    let socket = tls.map_or_else(String::new, |tls| {
        format!(
            "\n    transport_socket: {}",
            tls.envoy_socket(host.as_deref())
        )
    });
    let listen = args.proxy_listen;
    let template = ENVOY.replace("@SOURCES@", sources.trim_end());
    fill(
        &template,
        &[
            ("API_TYPE", api_type.to_owned()),
            ("KIND", kind.to_owned()),
            ("TLS", socket),
            ("LISTEN_IP", quote(&listen.ip().to_string())),
            ("LISTEN_PORT", listen.port().to_string()),
            ("ENDPOINTS", endpoints.join("\n")),
            ("CLUSTER_NAME", quote(node_id)),
            ("REGION", quote(&args.place.fabric)),
            ("ZONE", quote(&args.place.zone)),
            ("FAMILIES", args.address_families.as_str().to_owned()),
            ("UPSTREAM_TLS", upstream_tls(args).to_owned()),
            ("SECRETS", upstream_secrets(args).to_string()),
            ("SERVICES", Value::from(args.service.clone()).to_string()),
            ("NODE_ID", quote(node_id)),
        ],
    )
}

/// The template with a value for each `@NAME@` in it. Values stand as they are, whatever is in them.
fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut filled = String::with_capacity(2 * template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('@') {
        filled.push_str(before);
        let place = after.split_once('@').and_then(|(name, after)| {
            let (_, value) = values.iter().find(|(of, _)| *of == name)?;
            Some((value, after))
        });
        rest = if let Some((value, after)) = place {
            filled.push_str(value);
            after
        } else {
            filled.push('@');
            after
        };
    }
    filled.push_str(rest);
    filled
}

/// What an Envoy has for TLS to instances, as it says in its metadata.
fn upstream_tls(args: &BootstrapArgs) -> &'static str {
    match (&args.upstream_ca, &args.upstream_cert) {
        (None, _) => "none",
        (Some(_), None) => "server",
        (Some(_), Some(_)) => "mutual",
    }
}

/// The secrets for that, under the names by which clusters refer to them.
fn upstream_secrets(args: &BootstrapArgs) -> Value {
    let file = |name: &str| json!({ "filename": name });
    let authorities = args.upstream_ca.as_ref().map(
        |ca| json!({ "name": "waypost/ca", "validation_context": { "trusted_ca": file(ca) } }),
    );
    let identity = args.upstream_cert.as_ref().zip(args.upstream_key.as_ref());
    let identity = identity.map(|(cert, key)| {
        let certificate = json!({ "certificate_chain": file(cert), "private_key": file(key) });
        json!({ "name": "waypost/identity", "tls_certificate": certificate })
    });
    authorities.into_iter().chain(identity).collect()
}

/// Where Debian and its kin keep the CAs of the world; Envoy has no other way to find them.
const SYSTEM_CAS: &str = "/etc/ssl/certs/ca-certificates.crt";

const ENVOY: &str = include_str!("bootstrap/envoy.yaml");
const ENVOY_AGGREGATED: &str = include_str!("bootstrap/envoy-aggregated.yaml");
const ENVOY_PER_TYPE: &str = include_str!("bootstrap/envoy-per-type.yaml");

/// Java code for rest.li's D2 client.
fn d2(
    observers: &Observers,
    node_id: &str,
    tls: Option<&Tls>,
    args: &BootstrapArgs,
) -> Result<String, Failure> {
    let tls = match tls {
        // Its files are the caller's to read; Java has its own ways.
        Some(_) => {
            "    .setGrpcSslContext(grpcSslContext) // an SslContext of io.grpc.netty.GrpcSslContexts\n"
        }
        None => "",
    };
    let quote = |text: &str| Value::from(text).to_string();
    let service = args.service.first().cloned().unwrap_or_default();
    Ok(fill(
        include_str!("bootstrap/d2.java"),
        &[
            ("TLS", tls.to_owned()),
            ("TARGET", quote(&observers.grpc_target()?)),
            ("NODE_ID", quote(node_id)),
            ("SERVICE", service),
        ],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_as_they_are_whatever_is_in_them() {
        let values = [("A", "@B@ @A@".to_owned()), ("B", "b".to_owned())];
        assert_eq!(fill("@A@-@B@ x@y @C@B@", &values), "@B@ @A@-b x@y @Cb");
        assert_eq!(fill("a@", &values), "a@");
    }

    fn target(to: &[&str]) -> Result<String, Failure> {
        let to: Vec<_> = to.iter().map(|t| (*t).to_owned()).collect();
        Observers::parse(&to)?.grpc_target()
    }

    #[test]
    fn there_is_always_one_target_that_means_all_observers() {
        let cases = [
            (&["127.0.0.1:18000"][..], "dns:///127.0.0.1:18000"),
            (&["[::1]:1"], "dns:///[::1]:1"),
            (
                &["observers.example:18000"],
                "dns:///observers.example:18000",
            ),
        ];
        for (to, expected) in cases {
            assert_eq!(target(to).as_deref(), Ok(expected));
        }
        for bad in [
            &["a.example:1", "b.example:1"][..],
            &["127.0.0.1:1", "[::1]:1"],
            &["127.0.0.2:1", "127.0.0.3:1"],
        ] {
            assert!(target(bad).is_err(), "{bad:?}");
        }
    }
}
