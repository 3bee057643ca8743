//! The values of flags: durations, weights, metadata, addresses.

use std::time::Duration;

use serde_json::Value;
use waypost_core::ServiceName;
use waypost_core::config::Weight;

use crate::limits::TOPIC_PREFIX_BYTES_MAX;

/// Reads `10s`, `500ms`, `2m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a whole number and a unit, for example 10s, 500ms, 2m or 1h";
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| EXPECTED.to_owned())?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => return Err(EXPECTED.to_owned()),
    };
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| "is too long".to_owned())
}

/// A weight, for one D2 partition or for partition 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WeightArg {
    pub(crate) d2_partition: i32,
    pub(crate) weight: f64,
}

/// Reads `W` or `PARTITION=W`.
pub(crate) fn parse_weight(text: &str) -> Result<WeightArg, String> {
    let (d2_partition, weight) = match text.split_once('=') {
        Some((partition, weight)) => (partition.parse().ok(), weight),
        None => (Some(0), text),
    };
    let weight: Option<f64> = weight.parse().ok();
    match (d2_partition, weight) {
        (Some(d2_partition), Some(weight))
            if d2_partition >= 0 && weight.is_finite() && weight >= 0.0 =>
        {
            Ok(WeightArg {
                d2_partition,
                weight,
            })
        }
        _ => Err(
            "expected a weight of at least 0 (1.5) or D2 partition and weight (3=0.5)".to_owned(),
        ),
    }
}

/// Reads the weight of an override.
pub(crate) fn parse_override_weight(text: &str) -> Result<Weight, String> {
    let weight = text
        .parse()
        .ok()
        .and_then(|number| Weight::new(number).ok());
    weight.ok_or_else(|| "expected a weight of at least 0, for example 0.5".to_owned())
}

/// One key of the free metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetadataArg {
    pub(crate) key: String,
    pub(crate) value: Value,
}

/// Reads `KEY=JSON`.
pub(crate) fn parse_metadata(text: &str) -> Result<MetadataArg, String> {
    let (key, json) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or("expected KEY=JSON, for example build='\"2.4.1\"' or canary=true")?;
    let value = serde_json::from_str(json).map_err(|e| {
        format!("the value of {key} is not JSON ({e}); a text needs quotes: {key}='\"{json}\"'")
    })?;
    Ok(MetadataArg {
        key: key.to_owned(),
        value,
    })
}

/// Reads `HOST:PORT`; a leading `http://` is forgiven.
pub(crate) fn parse_host_port(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected HOST:PORT, for example 127.0.0.1:18001";
    let address = text.strip_prefix("http://").unwrap_or(text);
    let address = address.strip_suffix('/').unwrap_or(address);
    let (host, port) = address.rsplit_once(':').ok_or(EXPECTED)?;
    let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    let bad_host = host.is_empty() || host.contains(['/', '@', ' ']) || bare_v6;
    if bad_host || port.parse::<u16>().is_err() {
        return Err(EXPECTED.to_owned());
    }
    Ok(address.to_owned())
}

/// Reads the address of a gRPC port: as `parse_host_port`, or with `https://` before it for TLS.
pub(crate) fn parse_gateway(text: &str) -> Result<String, String> {
    let (scheme, address) = match text.strip_prefix("https://") {
        Some(address) => ("https://", address),
        None => ("", text),
    };
    let read = parse_host_port(address).map_err(|_| {
        "expected HOST:PORT or https://HOST:PORT, for example 127.0.0.1:18000".to_owned()
    })?;
    Ok(format!("{scheme}{read}"))
}

/// Reads the name of a service.
pub(crate) fn parse_service(text: &str) -> Result<String, String> {
    ServiceName::parse(text)
        .map(|name| name.as_str().to_owned())
        .map_err(|error| error.to_string())
}

/// Reads the authority of resource names: a part of a URL that needs no encoding.
pub(crate) fn parse_authority(text: &str) -> Result<String, String> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "-._~:".contains(c);
    if !text.is_empty() && text.chars().all(is_legal) {
        Ok(text.to_owned())
    } else {
        Err("expected letters, digits and -._~: as in a host name".to_owned())
    }
}

/// Reads a list of brokers, `HOST:PORT,…`.
pub(crate) fn parse_brokers(text: &str) -> Result<String, String> {
    let is_broker = |broker: &str| parse_host_port(broker).is_ok_and(|read| read == broker);
    if text.split(',').all(is_broker) {
        Ok(text.to_owned())
    } else {
        Err("expected HOST:PORT,…, for example kafka1:9092,kafka2:9092".to_owned())
    }
}

/// Reads the first part of the names of topics.
pub(crate) fn parse_topic_prefix(text: &str) -> Result<String, String> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=TOPIC_PREFIX_BYTES_MAX).contains(&text.len()) && text.chars().all(is_legal) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "expected 1 to {TOPIC_PREFIX_BYTES_MAX} of the characters that Kafka allows in the name of a topic: a-z, A-Z, 0-9, '.', '_', '-'"
        ))
    }
}

/// The shortest exact form: `10s`, `1500ms`.
pub(crate) fn show_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        let cases = [
            ("10s", 10_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0s", 0),
        ];
        for (text, millis) in cases {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for bad in [
            "",
            "10",
            "s",
            "1.5s",
            "-1s",
            "10 s",
            "10x",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn weights_name_a_partition_or_mean_the_first() {
        assert_eq!(
            parse_weight("1.5"),
            Ok(WeightArg {
                d2_partition: 0,
                weight: 1.5
            })
        );
        assert_eq!(
            parse_weight("3=0"),
            Ok(WeightArg {
                d2_partition: 3,
                weight: 0.0
            })
        );
        for bad in ["", "x", "-1", "1=", "=1", "-1=1", "1=inf", "NaN"] {
            assert!(parse_weight(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn metadata_is_json_and_says_how_to_quote_a_text() {
        let number = parse_metadata("n=9007199254740993.50").unwrap();
        assert_eq!(number.value.to_string(), "9007199254740993.50");
        assert!(
            parse_metadata("build=2.4.1x")
                .unwrap_err()
                .contains("build='\"2.4.1x\"'")
        );
        assert!(parse_metadata("=1").is_err());
        assert!(parse_metadata("k").is_err());
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (text, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("http://observer.example:18001/", "observer.example:18001"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(parse_host_port(text).as_deref(), Ok(expected));
        }
        for bad in [
            "",
            "host",
            "host:",
            ":1",
            "::1:1",
            "h:99999",
            "h/x:1",
            "https://h:1",
        ] {
            assert!(parse_host_port(bad).is_err(), "{bad}");
        }
    }
}
