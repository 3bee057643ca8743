//! Plays every case in its variants, many at a time, and says for each rule what was played. Prints
//! as Rust's own test programs do; an argument plays only the cases whose name holds it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use waypost_conformance::case::{Case, Variant, read_all};
use waypost_conformance::engine::EngineTarget;
use waypost_conformance::play::play;

/// Cases at a time: each has a server and waits most of the time.
const AT_A_TIME: usize = 48;

/// Longest that a case may take.
const CASE_MAX: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(&filters)));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(filters: &[String]) -> anyhow::Result<bool> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut plays: Vec<(Arc<Case>, Variant)> = Vec::new();
    for case in read_all(&folder)?.into_iter().map(Arc::new) {
        let chosen = filters.is_empty() || filters.iter().any(|f| case.id.contains(f.as_str()));
        if chosen {
            plays.extend(case.variants.iter().map(|v| (Arc::clone(&case), *v)));
        }
    }
    println!("running {} tests", plays.len());
    let mut by_rule: BTreeMap<String, usize> = BTreeMap::new();
    let (mut passed, mut failed) = (0, 0);
    let played = futures::stream::iter(plays).map(|(case, variant)| async move {
        let outcome = play_one(&case, variant).await;
        (case, variant, outcome)
    });
    let mut played = std::pin::pin!(played.buffer_unordered(AT_A_TIME));
    while let Some((case, variant, outcome)) = played.next().await {
        let name = format!("{} ({})", case.id, variant.word());
        match outcome {
            Ok(()) => {
                println!("test {name} ... ok");
                passed += 1;
                *by_rule.entry(case.rule_id().to_owned()).or_default() += 1;
            }
            Err(error) => {
                println!("test {name} ... FAILED\n  {}\n  {error:#}", case.rule);
                failed += 1;
            }
        }
    }
    let counts: Vec<String> = by_rule
        .iter()
        .map(|(rule, n)| format!("{rule}:{n}"))
        .collect();
    println!("\nplayed by rule: {}", counts.join(" "));
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    Ok(failed == 0)
}

async fn play_one(case: &Case, variant: Variant) -> anyhow::Result<()> {
    let target = EngineTarget::start(&case.with)?;
    match tokio::time::timeout(CASE_MAX, play(case, variant, &target)).await {
        Ok(outcome) => outcome,
        Err(_) => anyhow::bail!("not done within {CASE_MAX:?}"),
    }
}
