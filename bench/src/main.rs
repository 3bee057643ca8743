//! Measures what Waypost and its peers cost under load; see `cargo xtask bench` and bench/README.md.

mod clients;
mod clock;
mod consume;
mod curves;
mod fleet;
mod kernel;
mod load;
mod machine;
mod picture;
mod report;
mod runner;
mod scenario;
mod serve;
mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// As in the `waypost` binary, whose server is measured here.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Debug, Parser)]
#[command(name = "waypost-bench")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Runs scenarios and judges them.
    Run(runner::RunOptions),
    /// The clients: thousands of xDS streams, told what to do on standard input.
    Load(load::LoadOptions),
    /// The server under test: an Observer over a log in its own process.
    Serve(serve::ServeArgs),
    /// Writes a fleet into an embedded log or into Kafka.
    Fleet(fleet::write::FleetArgs),
    /// Reads a topic of Kafka with librdkafka alone.
    Consume(consume::ConsumeArgs),
    /// Measures what a unit costs as one size grows.
    Curves(curves::CurvesArgs),
    /// Draws curves from their data.
    Draw(picture::DrawArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("waypost-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::Run(options) => return runner::run(&options),
        Task::Load(options) => load::run(options)?,
        Task::Curves(args) => curves::run(&args)?,
        Task::Draw(args) => picture::draw(&args)?,
        Task::Serve(args) => serve::run(&args)?,
        Task::Consume(args) => consume::run(&args)?,
        Task::Fleet(args) => two_threads()?.block_on(fleet::write::run(args))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn two_threads() -> std::io::Result<tokio::runtime::Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build()
}
