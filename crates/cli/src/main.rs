//! The `waypost` binary. Everything is in the library beside it.

use std::process::ExitCode;

/// Observers hold millions of small values for days; jemalloc keeps them from fragmenting.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    waypost_cli::main()
}
