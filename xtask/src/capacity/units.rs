//! What one unit costs, as measured.

use anyhow::Context as _;
use serde_json::Value;

use crate::sh;

/// Costs of one Observer; `bench/units.json` holds them with the command that measured each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    /// One resource on one stream and its acknowledgement, with its share of the change behind it.
    pub(crate) cpu_us_per_delivery: f64,
    /// One record of the log that changes nothing.
    pub(crate) cpu_us_per_event: f64,
    /// One stream that comes with its names and is answered.
    pub(crate) cpu_us_per_join: f64,
    pub(crate) bytes_per_instance: f64,
    /// With a connection of its own, as real clients have it.
    pub(crate) bytes_per_stream: f64,
    /// Of the log, as a broker stores and sends it.
    pub(crate) bytes_per_record: f64,
    /// On the wire to a client.
    pub(crate) bytes_per_delivery: f64,
}

const FILE: &str = "bench/units.json";

impl Units {
    /// Reads the file of the tree.
    ///
    /// # Errors
    /// It is not there, or lacks a unit.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(sh::root().join(FILE)).context(FILE)?;
        let units: Value = serde_json::from_str(&text).context(FILE)?;
        let get = |name: &str| {
            let value = units.get(name).and_then(|unit| unit.get("value"));
            let value = value.and_then(Value::as_f64).filter(|value| *value > 0.0);
            value.with_context(|| format!("{FILE}: {name} has no value above 0"))
        };
        Ok(Self {
            cpu_us_per_delivery: get("cpu_us_per_delivery")?,
            cpu_us_per_event: get("cpu_us_per_event")?,
            cpu_us_per_join: get("cpu_us_per_join")?,
            bytes_per_instance: get("bytes_per_instance")?,
            bytes_per_stream: get("bytes_per_stream")?,
            bytes_per_record: get("bytes_per_record")?,
            bytes_per_delivery: get("bytes_per_delivery")?,
        })
    }
}
