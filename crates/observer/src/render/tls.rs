//! TLS from an Envoy to instances. Whether an instance wants it is its own word (the scheme of its URI);
//! whom to trust is the Envoy's, in secrets of its bootstrap file. A proxyless gRPC client has credentials of
//! its own and would refuse a cluster that speaks of others (gRFC A29).

use std::collections::HashMap;
use std::net::IpAddr;

use envoy_types::pb::envoy::config::cluster::v3::cluster::TransportSocketMatch;
use envoy_types::pb::envoy::config::core::v3::{Metadata, TransportSocket, transport_socket};
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, SdsSecretConfig, SubjectAltNameMatcher,
    TlsParameters, UpstreamTlsContext,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};
use envoy_types::pb::google::protobuf::{Any, Struct, Value, value::Kind};
use envoy_types::util::pack_any;
use waypost_core::{UpstreamTls, UriParts};

/// The secret with the certificates of authorities that instances are verified with, as `waypost
/// bootstrap envoy` calls it.
pub const CA_SECRET: &str = "waypost/ca";

/// The secret with the Envoy's own certificate and key.
pub const IDENTITY_SECRET: &str = "waypost/identity";

/// The namespace of an endpoint's metadata that Envoy compares with a cluster's transport sockets.
const MATCH_NAMESPACE: &str = "envoy.transport_socket_match";

/// What is compared in it.
const TLS_KEY: &str = "waypost.tls";

/// How a cluster's instances are spoken to: those that want it over TLS, the others in plain text.
/// None for an Envoy without certificates of authorities: whom it cannot verify it would trust blindly.
///
/// `peer_names` are those of which an instance's certificate must have one; without any it is enough that an
/// authority signed it.
pub(super) fn socket_matches(
    upstream_tls: UpstreamTls,
    peer_names: &[String],
) -> Vec<TransportSocketMatch> {
    let identity = match upstream_tls {
        UpstreamTls::None => return Vec::new(),
        UpstreamTls::Server => None,
        UpstreamTls::Mutual => Some(secret(IDENTITY_SECRET)),
    };
    let common = CommonTlsContext {
        tls_params: Some(TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
            ..TlsParameters::default()
        }),
        tls_certificate_sds_secret_configs: identity.into_iter().collect(),
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(
            CombinedCertificateValidationContext {
                default_validation_context: Some(CertificateValidationContext {
                    match_typed_subject_alt_names: peer_names.iter().map(|n| to_san(n)).collect(),
                    ..CertificateValidationContext::default()
                }),
                validation_context_sds_secret_config: Some(secret(CA_SECRET)),
                ..CombinedCertificateValidationContext::default()
            },
        )),
        ..CommonTlsContext::default()
    };
    let tls = UpstreamTlsContext {
        common_tls_context: Some(common),
        // The instance's host name, where it announces one.
        auto_host_sni: true,
        ..UpstreamTlsContext::default()
    };
    let socket = |name: &str, wanted: Option<Struct>, config: Any| TransportSocketMatch {
        name: name.to_owned(),
        r#match: Some(wanted.unwrap_or_default()),
        transport_socket: Some(TransportSocket {
            name: format!("envoy.transport_sockets.{name}"),
            config_type: Some(transport_socket::ConfigType::TypedConfig(config)),
        }),
    };
    vec![
        socket("tls", Some(wants_tls()), pack_any(tls)),
        // What wants nothing matches an empty condition.
        socket("raw_buffer", None, pack_any(RawBuffer::default())),
    ]
}

/// What an endpoint says of itself for that; `None` for plain text.
pub(super) fn endpoint_metadata(uri: &UriParts<'_>) -> Option<Metadata> {
    is_tls(uri).then(|| Metadata {
        filter_metadata: HashMap::from([(MATCH_NAMESPACE.to_owned(), wants_tls())]),
        ..Metadata::default()
    })
}

fn is_tls(uri: &UriParts<'_>) -> bool {
    matches!(uri.scheme, "https" | "grpcs")
}

fn wants_tls() -> Struct {
    let yes = Value {
        kind: Some(Kind::BoolValue(true)),
    };
    Struct {
        fields: HashMap::from([(TLS_KEY.to_owned(), yes)]),
    }
}

/// A secret of the bootstrap file: one without a source is looked for there.
fn secret(name: &str) -> SdsSecretConfig {
    SdsSecretConfig {
        name: name.to_owned(),
        sds_config: None,
    }
}

/// D2 compares names as text and does not say of which kind they are: an address, a URI (SPIFFE), or the
/// name of a host.
fn to_san(name: &str) -> SubjectAltNameMatcher {
    let san_type = if name.parse::<IpAddr>().is_ok() {
        SanType::IpAddress
    } else if name.contains("://") {
        SanType::Uri
    } else {
        SanType::Dns
    };
    SubjectAltNameMatcher {
        san_type: san_type.into(),
        matcher: Some(StringMatcher {
            match_pattern: Some(string_matcher::MatchPattern::Exact(name.to_owned())),
            ..StringMatcher::default()
        }),
        ..SubjectAltNameMatcher::default()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use waypost_core::InstanceUri;

    use super::*;

    fn context(found: &TransportSocketMatch) -> CommonTlsContext {
        let socket = found.transport_socket.as_ref().unwrap();
        let Some(transport_socket::ConfigType::TypedConfig(config)) = &socket.config_type else {
            panic!("{socket:?}");
        };
        let tls = UpstreamTlsContext::decode(&config.value[..]).unwrap();
        tls.common_tls_context.unwrap()
    }

    #[test]
    fn an_envoy_with_authorities_verifies_what_wants_tls_and_speaks_plain_text_to_the_rest() {
        assert_eq!(socket_matches(UpstreamTls::None, &["a".to_owned()]), []);
        for (upstream_tls, identities) in [(UpstreamTls::Server, 0), (UpstreamTls::Mutual, 1)] {
            let names = ["alpha-prod", "spiffe://prod/alpha", "10.0.0.1"].map(str::to_owned);
            let matches = socket_matches(upstream_tls, &names);
            let [tls, plain] = &matches[..] else {
                panic!("{matches:?}");
            };
            assert_eq!(tls.r#match, Some(wants_tls()));
            assert_eq!(plain.r#match, Some(Struct::default()));
            let common = context(tls);
            assert_eq!(common.tls_certificate_sds_secret_configs.len(), identities);
            let Some(ValidationContextType::CombinedValidationContext(validation)) =
                common.validation_context_type
            else {
                panic!("nothing is verified");
            };
            let authority = validation.validation_context_sds_secret_config.unwrap();
            assert_eq!(authority.name, CA_SECRET);
            let sans = validation.default_validation_context.unwrap();
            let kinds = sans
                .match_typed_subject_alt_names
                .iter()
                .map(SubjectAltNameMatcher::san_type);
            let expected = [SanType::Dns, SanType::Uri, SanType::IpAddress];
            assert_eq!(kinds.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_instance_wants_tls_if_its_uri_says_so() {
        for (uri, wanted) in [
            ("https://10.0.0.1", true),
            ("grpcs://h:1", true),
            ("http://h:443", false),
            ("grpc://h:1", false),
        ] {
            let uri = InstanceUri::parse(uri).unwrap();
            assert_eq!(endpoint_metadata(&uri.parts()).is_some(), wanted, "{uri}");
        }
    }
}
