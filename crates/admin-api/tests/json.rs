//! The JSON form is a contract: spelling and exact numbers are pinned here.

use serde_json::json;
use waypost_admin_api::{UriView, WatchEvent, WatchEventKind};

fn instance() -> serde_json::Value {
    json!({
        "cluster": "greeter", "uri": "grpc://h:1", "hostname": "h", "addresses": ["10.0.0.7:1"],
        "unresolved": null, "health": "draining", "weights": {"0": 1.0, "3": 0.5},
        "metadata": {"z": 1, "a": 2}, "fabric": "", "zone": "",
        "application": "", "tracing_id": "t", "origin_at_ms": 5, "heartbeat_ms": 10000,
        "ttl_ms": 30000,
        "sources": [{"name": "log", "served": true, "log": {
            "partition": 0, "wrong_partition": false, "offset": 7, "appended_at_ms": 6,
            "heartbeat_age_ms": 12, "life_id": "00000000000000ff", "born_at_ms": 1, "seq": 2,
            "held": false, "unconfirmed": false}}],
        "refused": [], "overridden": null, "announced": null, "evicted": null
    })
}

#[test]
fn a_watch_line_survives_a_round_trip_with_its_spelling() {
    let line = json!({
        "event": "changed", "uri": "grpc://h:1", "instance": instance(),
        "propagation_ms": 3, "instances": 1
    });
    let event: WatchEvent = serde_json::from_value(line.clone()).unwrap();
    assert_eq!(event.event, WatchEventKind::Changed);
    assert_eq!(serde_json::to_value(&event).unwrap(), line);
}

#[test]
fn metadata_keeps_key_order_and_numbers_that_no_float_can_hold() {
    let metadata = r#"{"z":12345678901234567890.123456789,"a":1e+400}"#;
    let mut text = serde_json::to_string(&instance()).unwrap();
    let start = text.find(r#"{"z":1,"a":2}"#).unwrap();
    let end = start + text[start..].find('}').unwrap() + 1;
    text.replace_range(start..end, metadata);
    let view: UriView = serde_json::from_str(&text).unwrap();
    assert!(serde_json::to_string(&view).unwrap().contains(metadata));
}

#[test]
fn fields_of_a_later_release_are_ignored() {
    let mut value = instance();
    value["invented_later"] = json!(true);
    assert!(serde_json::from_value::<UriView>(value).is_ok());
}
