//! The page of rules and the cases say the same.

use std::collections::BTreeSet;
use std::path::Path;

use waypost_conformance::case::read_all;

/// The rules whose breach costs clients their traffic: each is checked somewhere, and the page says
/// where.
const VITAL: &[std::ops::RangeInclusive<u32>] = &[
    5..=5,
    14..=17,
    20..=29,
    31..=32,
    35..=40,
    43..=47,
    50..=50,
    53..=57,
    60..=62,
    70..=70,
    72..=72,
    75..=75,
    77..=80,
    84..=85,
    88..=91,
    103..=105,
    139..=140,
    147..=147,
    152..=152,
];

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
fn every_vital_rule_is_on_the_page() {
    let page = page();
    let ids: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| xds-")?.get(..3))
        .collect();
    for rule in VITAL.iter().cloned().flatten() {
        let id = format!("{rule:03}");
        assert!(ids.contains(id.as_str()), "xds-{id} is not on the page");
    }
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
