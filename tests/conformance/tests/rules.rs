//! The page of rules and the cases say the same.

use std::collections::BTreeSet;
use std::path::Path;

use waypost_conformance::case::read_all;
use waypost_conformance::rules::{ids_on, ids_required};

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/xds-rules.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_page_has_a_row_for_every_case_in_the_cases_own_words() {
    let page = page();
    let cases = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).unwrap();
    let mut missing = Vec::new();
    for case in cases {
        let variants: Vec<&str> = case.variants.iter().map(|v| v.word()).collect();
        let row = format!(
            "| {} | {} | {} | {} |",
            case.id,
            case.rule,
            case.source,
            variants.join(", ")
        );
        if !page.contains(&row) {
            missing.push(row);
        }
    }
    assert!(
        missing.is_empty(),
        "rows missing in docs/xds-rules.md:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_rule_that_must_be_there_is_on_the_page() {
    let ids = ids_on(&page());
    let missing: Vec<String> = ids_required()
        .into_iter()
        .filter(|id| !ids.contains(id))
        .collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}

#[test]
fn the_page_names_no_case_that_does_not_exist() {
    let cases = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).unwrap();
    let ids: BTreeSet<String> = cases.into_iter().map(|case| case.id).collect();
    let page = page();
    let (_, rows) = page.split_once("## Cases").unwrap();
    let (rows, _) = rows.split_once("\n## ").unwrap_or((rows, ""));
    for line in rows.lines() {
        let id = line.strip_prefix("| ").and_then(|l| l.split(' ').next());
        let id = id.filter(|id| id.contains('-') && !id.starts_with("--"));
        assert!(id.is_none_or(|id| ids.contains(id)), "{line}");
    }
}
