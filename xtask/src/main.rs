//! Everything about this project that needs more than one command line: `cargo xtask --help`.
//!
//! Kept small on purpose: it is compiled before anything else can start.

mod bench;
mod capacity;
mod cargo;
mod counts;
mod parts;
mod prove;
mod sh;
mod suite;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Waypost's own tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Installs what the tests need and runs them all; the last line says how many passed.
    Test {
        /// Run only these tiers (of those that `--list` names); all by default.
        tiers: Vec<String>,
        /// Say what the tiers are and what each is for.
        #[arg(long)]
        list: bool,
    },
    /// Installs what the tests need: Debian packages, Kafka, Python environments, Go.
    Parts,
    /// Checks what no compiler checks: layers, lengths, documents.
    Tidy,
    /// Shows that the product does what it promises, with real programs.
    Prove {
        /// The proof, as `--list` names it.
        #[arg(required_unless_present = "list")]
        name: Option<String>,
        /// The short form that the test command runs.
        #[arg(long)]
        short: bool,
        /// Say what each proof shows, what it needs and how long it takes.
        #[arg(long)]
        list: bool,
    },
    /// Says what a fleet needs, from measured unit costs (docs/capacity.md).
    Capacity(capacity::Question),
    /// Measures what serving costs, side by side with peers; fails where a bar is missed.
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Test { list: true, .. } => suite::list(),
        Task::Test { tiers, .. } => suite::run(&tiers),
        Task::Parts => parts::install(),
        Task::Tidy => tidy::run(),
        Task::Prove { list: true, .. } => prove::list(),
        Task::Prove { name, short, .. } => prove::run(&name.unwrap_or_default(), short),
        Task::Capacity(question) => capacity::run(&question),
        Task::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            sh::complain(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
