//! Clients that connect, ask, are answered and go, in every way in which clients go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::task::JoinSet;
use waypost_core::ResourceType;
use waypost_testkit::memory::{open_files, resident_bytes};
use waypost_testkit::probe::{DeltaProbe, RESPONSE_MAX, SotwProbe, connect, mk_node};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::Server;

use crate::figures::Figures;
use crate::look;

/// Clients at a time.
const AT_A_TIME: usize = 16;
/// Clients after which the server has as many buffers and pages as it will ever need for so many.
const WARM_UP_MAX: usize = 10_000;
/// Growth of memory that is no leak, in percent of what it was after the warm-up: the allocator does
/// not give back every page.
const GROWTH_PERCENT_MAX: u64 = 5;
/// How long the server may take to give back what the last clients held.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// What the server holds when no client is there.
struct Held {
    resident_bytes: u64,
    open_files: usize,
}

/// Lets clients come and go, and compares what the server holds after the first of them with what it
/// holds in the end.
pub(super) async fn check(
    server: &Server,
    cycles: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let address = server.listen().to_string();
    let warm_up = WARM_UP_MAX.min(cycles / 3);
    run(&address, warm_up).await?;
    let before = when_empty(server, None).await?;
    run(&address, cycles - warm_up).await?;
    let after = when_empty(server, Some(&before)).await;
    let now = resident_bytes(server.process.pid())?;
    figures.add("clients that came and went", cycles);
    figures.add(
        "memory",
        format_args!(
            "{} KiB after the first {warm_up}, {} KiB after all (at most {GROWTH_PERCENT_MAX} % more)",
            before.resident_bytes / 1024,
            now / 1024
        ),
    );
    let after = after?;
    figures.add(
        "open files",
        format_args!("{} and {}", before.open_files, after.open_files),
    );
    Ok(())
}

/// Waits until no stream and no connection is left, and memory is what it was, within the bound.
async fn when_empty(server: &Server, before: Option<&Held>) -> anyhow::Result<Held> {
    let pid = server.process.pid();
    eventually("what clients held is given back", SETTLE_MAX, || async {
        let streams = look::all(server.admin(), "streams").await?;
        ensure!(streams.is_empty(), "{} streams", streams.len());
        let held = Held {
            resident_bytes: resident_bytes(pid)?,
            open_files: open_files(pid)?,
        };
        if let Some(before) = before {
            let most = before.resident_bytes + before.resident_bytes * GROWTH_PERCENT_MAX / 100;
            ensure!(
                held.resident_bytes <= most,
                "{} bytes, at most {most}",
                held.resident_bytes
            );
            ensure!(
                held.open_files <= before.open_files,
                "{} open files, {} before",
                held.open_files,
                before.open_files
            );
        }
        Ok(held)
    })
    .await
}

/// So many clients, several at a time.
async fn run(address: &str, clients: usize) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (next, address) = (Arc::clone(&next), address.to_owned());
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= clients {
                    return anyhow::Ok(());
                }
                one(&address, number)
                    .await
                    .with_context(|| format!("client {number}"))?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

/// One client: connects, asks, and leaves in one of the ways in which clients leave.
async fn one(address: &str, number: usize) -> anyhow::Result<()> {
    let eds = ResourceType::ClusterLoadAssignment.type_url();
    let node = ResourceType::D2Node.type_url();
    let channel = connect(address).await?;
    match number % 4 {
        // Connects and says nothing.
        0 => drop(channel),
        // Is answered and leaves.
        1 => {
            let mut probe = DeltaProbe::open(channel, mk_node("")).await?;
            probe.subscribe(node, &["/d2/clusters/nobody"]).await?;
            probe.expect_removed(node, "/d2/clusters/nobody").await?;
        }
        // Asks and does not wait for the answer.
        2 => {
            let mut probe = DeltaProbe::open(channel, mk_node("rest.li")).await?;
            probe.subscribe(eds, &["nobody", "somebody"]).await?;
        }
        // The other variant, everything of a type, and an answer that is never confirmed.
        _ => {
            let mut probe = SotwProbe::open(channel, mk_node("envoy")).await?;
            let cds = ResourceType::Cluster.type_url();
            probe.subscribe(cds, &["nobody"]).await?;
            probe.receive(RESPONSE_MAX).await?;
        }
    }
    Ok(())
}
