//! The conformance suite: every case in its variants, a count by rule, and that no rule which clients
//! live on is without a place where it is checked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::task::JoinSet;
use waypost_conformance::case::read_all;
use waypost_conformance::engine::EngineTarget;
use waypost_conformance::play::play;
use waypost_conformance::rules::{ids_on, ids_required};
use waypost_testkit::parts::source_root;

use crate::Form;
use crate::figures::Figures;

/// Longest that a case may take.
const CASE_MAX: Duration = Duration::from_secs(120);
/// Cases that are played at a time.
const AT_A_TIME: usize = 16;

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(_form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    figures.step("every case, in its variants, against the engine");
    play_all(figures).await?;
    figures.step("every rule that clients live on has a row that says where it is checked");
    check_page(figures)
}

/// Plays every case and adds the counts.
pub(crate) async fn play_all(figures: &mut Figures) -> anyhow::Result<()> {
    let cases = read_all(&source_root().join(Path::new("tests/conformance/cases")))?;
    let mut by_rule: BTreeMap<String, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    let permits = Arc::new(tokio::sync::Semaphore::new(AT_A_TIME));
    let mut plays = JoinSet::new();
    for case in cases.into_iter().map(Arc::new) {
        for variant in case.variants.clone() {
            let (case, permits) = (Arc::clone(&case), Arc::clone(&permits));
            plays.spawn(async move {
                let _permit = permits.acquire_owned().await;
                let played = async {
                    let target = EngineTarget::start(&case.with)?;
                    play(&case, variant, &target).await
                };
                let outcome = tokio::time::timeout(CASE_MAX, played).await;
                let outcome = outcome
                    .map_err(anyhow::Error::from)
                    .and_then(std::convert::identity);
                (case, variant, outcome)
            });
        }
    }
    while let Some(played) = plays.join_next().await {
        let (case, variant, outcome) = played?;
        *by_rule.entry(case.rule_id().to_owned()).or_default() += 1;
        if let Err(error) = outcome {
            failures.push(format!(
                "{} ({}): {}\n  {error:#}",
                case.id,
                variant.word(),
                case.rule
            ));
        }
    }
    let counts: Vec<String> = by_rule
        .iter()
        .map(|(rule, count)| format!("{rule}:{count}"))
        .collect();
    figures.add("cases played, by rule", counts.join(" "));
    figures.add("cases played", by_rule.values().sum::<usize>());
    figures.add("cases failed", failures.len());
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Adds how many rules the page has, and fails if it lacks one.
fn check_page(figures: &mut Figures) -> anyhow::Result<()> {
    let path = source_root().join("docs/xds-rules.md");
    let page = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let ids = ids_on(&page);
    for (kind, what) in [
        ("xds-", "of xDS"),
        ("d2-", "of D2"),
        ("fr-", "out of the field"),
    ] {
        let count = ids.iter().filter(|id| id.starts_with(kind)).count();
        figures.add(format!("rules {what} on the page"), count);
    }
    let missing: Vec<String> = ids_required()
        .into_iter()
        .filter(|id| !ids.contains(id))
        .collect();
    figures.add("rules that must be there and are not", missing.len());
    ensure!(missing.is_empty(), "not in docs/xds-rules.md: {missing:?}");
    Ok(())
}
