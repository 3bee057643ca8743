//! The page of D2's rules names cases, tests and proofs that there are, and no rule is missing.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: what cannot be read fails the test"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use waypost_conformance::case::read_all;

/// How many rules there are.
const RULES: usize = 114;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Number and last column of each row.
fn rows() -> Vec<(usize, String)> {
    let page = read("docs/d2-rules.md");
    let rows = page.lines().filter(|line| line.starts_with("| d2-"));
    let rows = rows.map(|line| {
        let columns: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        assert_eq!(columns.len(), 4, "{line}");
        let number = columns[0].trim().strip_prefix("d2-").unwrap();
        (number.parse().unwrap(), columns[3].trim().to_owned())
    });
    rows.collect()
}

#[test]
fn every_rule_is_on_the_page_once_and_in_order() {
    let numbers: Vec<usize> = rows().into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, (1..=RULES).collect::<Vec<_>>());
}

#[test]
fn every_place_that_the_page_names_exists() {
    let cases = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).unwrap();
    let cases: BTreeSet<String> = cases.into_iter().map(|case| case.id).collect();
    let proofs = read("tests/e2e/src/lib.rs");
    for (number, places) in rows() {
        for place in places.split("; ") {
            let (kind, rest) = place.split_once(' ').unwrap();
            let exists = match kind {
                "case" => cases.contains(rest),
                "test" => {
                    let (file, test) = rest.split_once(' ').unwrap();
                    let text = read(file.trim_matches('`'));
                    text.contains(&format!("fn {}(", test.trim_matches('`')))
                }
                "proof" => proofs.contains(&format!("name: \"{rest}\"")),
                "bench" => root()
                    .join(format!("bench/src/scenario/{rest}.rs"))
                    .exists(),
                "later:" => !rest.is_empty(),
                _ => place.starts_with("by construction: "),
            };
            assert!(exists, "d2-{number:03}: there is no {place}");
        }
    }
}

#[test]
fn every_case_of_a_d2_rule_is_on_the_page() {
    let page: String = rows()
        .into_iter()
        .map(|(_, places)| places + "; ")
        .collect();
    let cases = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).unwrap();
    for case in cases.iter().filter(|case| case.id.starts_with("d2-")) {
        let named = page.contains(&format!("case {};", case.id));
        assert!(named, "docs/d2-rules.md does not name case {}", case.id);
    }
}
