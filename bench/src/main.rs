//! Measures a real `waypost dev` under load; see `cargo xtask bench`.
//!
//! The load runs in this process, the server in its own: what is said about CPU and memory is read
//! from the server's process alone, but both share the machine.

mod clock;
mod fleet;
mod load;
mod picture;
mod process;
mod serve;
mod smoke;
mod streams;

use clap::{Parser, Subcommand};

/// As in the `waypost` binary, whose server is measured here.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Debug, Parser)]
#[command(name = "waypost-bench")]
struct Cli {
    #[command(subcommand)]
    load: Load,
}

#[derive(Debug, Subcommand)]
enum Load {
    /// 10,000 instances, 1,000 streams of 10 names each.
    Smoke {
        /// A tenth of it.
        #[arg(long)]
        short: bool,
    },
    /// Draws curves from their data.
    Draw(picture::DrawArgs),
    /// The server under test: an Observer over a log in its own process.
    Serve(serve::ServeArgs),
    /// Writes a fleet into an embedded log or into Kafka.
    Fleet(fleet::write::FleetArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().load {
        Load::Smoke { short: true } => two_threads()?.block_on(smoke::run(smoke::SHORT)),
        Load::Smoke { short: false } => two_threads()?.block_on(smoke::run(smoke::FULL)),
        Load::Draw(args) => picture::draw(&args),
        Load::Serve(args) => serve::run(&args),
        Load::Fleet(args) => two_threads()?.block_on(fleet::write::run(args)),
    }
}

fn two_threads() -> std::io::Result<tokio::runtime::Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build()
}
