//! `waypost status`.

use waypost_admin_api::{LogStatus, SourceStatus, Status, path};

use super::compare;
use super::rows::word;
use crate::admin::Admin;
use crate::args::StatusArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, show_age};

pub(crate) async fn run(args: StatusArgs) -> Result<Exit, Failure> {
    if !args.compare.is_empty() {
        return compare::run(&args.server.server, &args.compare, args.output.output).await;
    }
    let admin = Admin::new(&args.server.server);
    let status: Status = admin.get(&path::status()).await?;
    output::print(args.output.output, &status, || lines(&status).join("\n"))?;
    Ok(judge(&status))
}

/// 0 ready and fresh, 1 not ready, 3 ready but stale or holding.
fn judge(status: &Status) -> Exit {
    let holds = !status.holding_clusters.is_empty() || status.counts.held_instances > 0;
    match (status.ready, status.stale || holds) {
        (false, _) => Exit::Bad,
        (true, true) => Exit::Stale,
        (true, false) => Exit::Done,
    }
}

fn lines(status: &Status) -> Vec<String> {
    let observer = &status.observer;
    let counts = &status.counts;
    let state = match (status.ready, status.stale) {
        (false, _) => "not ready",
        (true, true) => "ready, but stale",
        (true, false) => "ready",
    };
    let up = show_age(observer.uptime_ms);
    let mut lines = vec![
        format!(
            "{state}: {} {}, up {up}",
            observer.identifier, observer.version
        ),
        format!(
            "gRPC {}, admin {}",
            observer.grpc_address, observer.admin_address
        ),
    ];
    let pending = status.pending.iter();
    lines.extend(pending.map(|p| format!("waits for {}: {}", p.name, p.reason)));
    let reasons = status.stale_reasons.iter();
    lines.extend(reasons.map(|why| format!("stale: {why}")));
    lines.extend(status.sources.iter().map(source_line));
    lines.push(log_line(&status.log));
    let keeper = &status.keeper;
    lines.push(format!(
        "keeper: {} (current {})",
        word(&keeper.role),
        keeper.current_id.as_deref().unwrap_or("none yet")
    ));
    lines.push(format!(
        "{} cluster(s), {} service(s), {} instance(s), {} stream(s)",
        counts.clusters, counts.services, counts.instances, counts.streams
    ));
    lines.extend(unusual_lines(status));
    lines
}

fn source_line(source: &SourceStatus) -> String {
    let age = source.last_record_age_ms.map_or_else(
        || "no record yet".to_owned(),
        |ms| format!("last record {} ago", show_age(ms)),
    );
    let detail = match &source.detail {
        Some(detail) => format!(", {detail}"),
        None => String::new(),
    };
    format!(
        "source {}: {}, {} record(s) behind, {age}{detail}",
        source.name,
        word(&source.state),
        source.lag_records
    )
}

/// What an operator has to decide on.
fn unusual_lines(status: &Status) -> Vec<String> {
    let counts = &status.counts;
    let mut lines = Vec::new();
    if counts.held_instances > 0 || !status.holding_clusters.is_empty() {
        let clusters = status.holding_clusters.join(", ");
        lines.push(format!(
            "held expiries: {} instance(s) of {clusters}",
            counts.held_instances
        ));
    }
    if counts.unconfirmed_instances > 0 {
        let count = counts.unconfirmed_instances;
        lines.push(format!("unconfirmed: {count} instance(s)"));
    }
    let orphaned = status.orphaned.iter();
    lines.extend(orphaned.map(|o| format!("orphaned definition: {} {}", o.kind, o.name)));
    lines.extend(status.refused_definitions.iter().map(|r| {
        let place = format!("config {}@{}", r.partition, r.offset);
        format!("refused definition at {place}: {}", r.reason)
    }));
    lines
}

fn log_line(log: &LogStatus) -> String {
    let topics: Vec<_> = log
        .topics
        .iter()
        .map(|topic| {
            let lag: u64 = topic.partitions.iter().filter_map(|p| p.lag_records).sum();
            format!(
                "{} {} partition(s), lag {lag}",
                topic.name,
                topic.partitions.len()
            )
        })
        .collect();
    format!(
        "log: {}, identity {}; {}",
        word(&log.kind),
        log.identity.as_deref().unwrap_or("not read yet"),
        topics.join("; ")
    )
}
