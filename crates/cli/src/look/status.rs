//! `waypost status`.

use waypost_admin_api::{HoldingScope, LogStatus, SourceStatus, Status, path};

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
    let holds = !status.holding.is_empty() || !status.holding_clusters.is_empty();
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
    let mut lines: Vec<_> = status.holding.iter().map(holding_line).collect();
    let replaying = status.replaying.iter();
    lines.extend(replaying.map(|topic| {
        format!("replaying: {topic} is read again from its beginning; what was known is served")
    }));
    if counts.unconfirmed_instances > 0 {
        let count = counts.unconfirmed_instances;
        lines.push(format!(
            "unconfirmed: {count} instance(s) of a log that is gone, served until announced again or their time-to-live is over"
        ));
    }
    let orphaned = status.orphaned.iter();
    lines.extend(orphaned.map(|o| {
        let uri = o.uri.as_ref().map(|uri| format!(" {uri}"));
        let (kind, name) = (&o.kind, &o.name);
        format!("orphaned: {kind} {name}{}", uri.unwrap_or_default())
    }));
    let rest = counts.orphaned.saturating_sub(status.orphaned.len() as u64);
    if rest > 0 {
        lines.push(format!("orphaned: and {rest} more"));
    }
    lines.extend(status.refused_definitions.iter().map(|r| {
        let place = format!("config {}@{}", r.partition, r.offset);
        format!("refused definition at {place}: {}", r.reason)
    }));
    lines.extend(status.shared_symlinks.iter().map(|shared| {
        format!(
            "symlinks: {} all lead to {}; D2 clients follow only one of them, give each a cluster of its own",
            shared.symlinks.join(", "),
            shared.cluster
        )
    }));
    lines
}

fn holding_line(holding: &HoldingScope) -> String {
    let (what, release) = match &holding.cluster {
        Some(cluster) => (format!("cluster {cluster}"), cluster.as_str()),
        None => ("the fleet".to_owned(), "--all"),
    };
    format!(
        "holding: {what}: {} of {} instance(s) silent and served on for {}; `waypost release {release}` lets them go",
        holding.overdue,
        holding.live,
        show_age(holding.lasts_ms)
    )
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
