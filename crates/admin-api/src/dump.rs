//! The configuration of the process and the versions of all that it serves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /config_dump`; `?type=LABEL` (`cds`, `eds`, `lds`, `rds`, `d2_node`, `d2_uri_map`, `d2_uri`,
/// `d2_name`) names one type, `?limit=` and `?after=` page through its resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigDump {
    /// The settings that the process runs with, defaults filled in; secrets are left out.
    pub settings: BTreeMap<String, String>,
    /// The resources of the type asked for, in name order; all types' when none was named. Equal
    /// on every Observer that has read the same log.
    pub resources: Vec<ResourceEntry>,
    /// Pass this as `?after=` for the resources that follow; `null` on the last page.
    pub next: Option<String>,
}

/// One served resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceEntry {
    /// The label of its type.
    #[serde(rename = "type")]
    pub type_label: String,
    /// Its name.
    pub name: String,
    /// Its version: a digest of its bytes.
    pub version: String,
    /// Its size on the wire.
    pub size_bytes: u64,
}
