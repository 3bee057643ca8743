//! Measures a real `waypost dev` under load; see `cargo xtask bench`.
//!
//! The load runs in this process, the server in its own: what is said about CPU and memory is read
//! from the server's process alone, but both share the machine.

mod load;
mod process;
mod smoke;
mod streams;

use clap::{Parser, Subcommand};

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
}

fn main() -> anyhow::Result<()> {
    let Load::Smoke { short } = Cli::parse().load;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    runtime.block_on(smoke::run(if short { smoke::SHORT } else { smoke::FULL }))
}
