//! Who may import whom. A crate exists where it forbids a dependency, so the table is the design.

use std::collections::BTreeMap;

use serde_json::Value;

/// The product's crates by layer, lowest first. A crate imports only crates of lower layers; two
/// crates of one layer do not know each other.
const LAYERS: &[&[&str]] = &[
    &["waypost-core"],
    &["waypost-proto", "waypost-tls"],
    &[
        "waypost-fold",
        "waypost-store",
        "waypost-xds",
        "waypost-xds-client",
    ],
    &["waypost-log", "waypost-runtime"],
    &["waypost-announcer", "waypost-client", "waypost-admin-api"],
    &["waypost-observer"],
    &["waypost"],
];

/// Imports that the layers would allow and the design forbids: who, whom, why.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    (
        "waypost-announcer",
        "waypost-log",
        "it is handed a log; it chooses none",
    ),
    (
        "waypost-announcer",
        "waypost-store",
        "it writes; it never looks",
    ),
];

/// Crates that are never part of the product. All but the test kit import what they like.
const DEVELOPMENT: &[&str] = &[
    "waypost-testkit",
    "waypost-conformance",
    "waypost-d2-client",
    "waypost-e2e",
    "waypost-sim",
    "waypost-bench",
    "xtask",
];

/// The test kit links the shared vocabulary and nothing that it tests.
const TESTKIT: (&str, &[&str]) = ("waypost-testkit", &["waypost-core", "waypost-proto"]);

/// Checks the dependencies of every crate of the workspace (development ones excepted).
pub(super) fn check(metadata: &Value) -> Vec<String> {
    let imports = imports(metadata);
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    let mut complaints = Vec::new();
    for (name, theirs) in &imports {
        if DEVELOPMENT.contains(name) {
            let (kit, allowed) = TESTKIT;
            let bad = theirs
                .iter()
                .filter(|other| *name == kit && !allowed.contains(other));
            complaints.extend(bad.map(|other| format!("{name} must not link {other}")));
            continue;
        }
        let Some(own) = layer(name) else {
            complaints.push(format!(
                "{name} has no layer: give it one in xtask/src/tidy/layers.rs"
            ));
            continue;
        };
        for other in theirs {
            let forbidden = FORBIDDEN
                .iter()
                .find(|(who, whom, _)| who == name && whom == other);
            if let Some((_, _, why)) = forbidden {
                complaints.push(format!("{name} must not import {other}: {why}"));
            } else if layer(other).is_none_or(|theirs| theirs >= own) {
                complaints.push(format!(
                    "{name} imports {other}, which is not of a lower layer"
                ));
            }
        }
    }
    complaints
}

/// Each workspace crate's imports of other workspace crates.
fn imports(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let packages = || metadata["packages"].as_array().into_iter().flatten();
    let names: Vec<&str> = packages()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let of_package = |package: &'_ Value| -> Vec<String> {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let linked = dependencies.filter(|dependency| dependency["kind"] != "dev");
        linked
            .filter_map(|dependency| dependency["name"].as_str())
            .map(str::to_owned)
            .collect()
    };
    packages()
        .filter_map(|package| {
            let theirs = of_package(package);
            let ours = names
                .iter()
                .copied()
                .filter(|name| theirs.iter().any(|other| other == name));
            Some((package["name"].as_str()?, ours.collect()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(name: &str, imports: &[(&str, Option<&str>)]) -> Vec<String> {
        let dependencies: Vec<Value> = imports
            .iter()
            .map(|(name, kind)| json!({"name": name, "kind": kind}))
            .collect();
        let others = imports
            .iter()
            .map(|(name, _)| json!({"name": name, "dependencies": []}));
        let own = json!({"name": name, "dependencies": dependencies});
        check(&json!({"packages": others.chain([own]).collect::<Vec<_>>()}))
    }

    #[test]
    fn a_crate_may_import_lower_layers_and_anything_for_its_tests() {
        let imports = [
            ("waypost-core", None),
            ("waypost-testkit", Some("dev")),
            ("waypost-core", None),
        ];
        assert_eq!(complaints("waypost-log", &imports), Vec::<String>::new());
    }

    #[test]
    fn what_the_design_forbids_is_named() {
        for (who, whom) in [
            ("waypost-store", "waypost-xds"),
            ("waypost-xds", "waypost-store"),
            ("waypost-core", "waypost-proto"),
            ("waypost-announcer", "waypost-log"),
            ("waypost-observer", "waypost-testkit"),
            ("waypost-testkit", "waypost-store"),
            ("waypost-new", "waypost-core"),
        ] {
            assert_eq!(
                complaints(who, &[(whom, None)]).len(),
                1,
                "{who} imports {whom}"
            );
        }
    }
}
