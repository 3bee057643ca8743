//! `waypost describe cluster|service|uri|stream|callees NAME`.

use serde::Serialize;
use serde_json::Value;
use waypost_admin_api::{
    AddressFamilies, CalleesView, ClusterView, DefinitionView, LoadView, LocalityLoadView,
    OperatorView, ServiceView, StreamView, UriView, path,
};

use super::{get, rows, statements};
use crate::admin::Admin;
use crate::args::{DescribeArg, DescribeArgs, OutputFormat};
use crate::exit::{Exit, Failure};
use crate::output::{self, show_age, show_time};

pub(crate) async fn run(args: DescribeArgs) -> Result<Exit, Failure> {
    let admin = Admin::new(&args.server.server);
    let format = args.output.output;
    if args.uri.is_some() != (args.what == DescribeArg::Uri) {
        return Err(Failure::usage(
            "`describe uri` needs a cluster and a URI, the others one name: waypost describe uri CLUSTER URI",
        ));
    }
    match args.what {
        DescribeArg::Cluster => {
            let view: ClusterView = admin.get(&path::cluster(&args.name)).await?;
            let uris: Vec<UriView> = admin.get_all(&path::uris(&args.name)).await?;
            let operator: OperatorView = admin.get(&path::operator(Some(&args.name))).await?;
            print(format, &view, || cluster_lines(&view, &uris, &operator))
        }
        DescribeArg::Service => {
            let view: ServiceView = admin.get(&path::service(&args.name)).await?;
            print(format, &view, || service_lines(&view))
        }
        DescribeArg::Callees => {
            let view: CalleesView = admin.get(&path::callees_of(&args.name)).await?;
            print(format, &view, || callees_lines(&view))
        }
        DescribeArg::Uri => {
            let wanted = args.uri.unwrap_or_default();
            let view = find_uri(&admin, &args.name, &wanted).await?;
            print(format, &view, || uri_lines(&view))
        }
        DescribeArg::Stream => {
            let view = get::streams(&admin, Some(&args.name)).await?.remove(0);
            print(format, &view, || {
                let mut lines = Lines::default();
                lines.put_json(&view);
                lines.put("not told of", not_told(&view));
                lines.0
            })
        }
    }
}

/// What a client misses because of the addresses that it can use.
fn not_told(stream: &StreamView) -> &'static str {
    match stream.address_families {
        AddressFamilies::Both => "",
        AddressFamilies::Ipv4 => "instances with IPv6 only; `waypost describe cluster` lists them",
        AddressFamilies::Ipv6 => "instances with IPv4 only; `waypost describe cluster` counts them",
    }
}

/// One instance. Of one that nobody announces the error says what operators stated about it.
async fn find_uri(admin: &Admin, cluster: &str, uri: &str) -> Result<UriView, Failure> {
    let found: Result<Vec<UriView>, _> = admin.get_all(&path::uris(cluster)).await;
    let found = match found {
        Ok(uris) => uris
            .into_iter()
            .find(|u| u.uri == uri)
            .ok_or_else(|| Failure::failed(format!("cluster {cluster} has no URI {uri}"))),
        Err(failure) => Err(failure),
    };
    let Err(failure) = found else {
        return found;
    };
    let operator: Result<OperatorView, _> = admin.get(&path::operator(Some(cluster))).await;
    let notes = operator.map_or_else(|_| String::new(), |view| statements::of_absent(&view, uri));
    Err(Failure::failed(format!("{failure}{notes}")))
}

fn print<T: Serialize>(
    format: OutputFormat,
    view: &T,
    lines: impl FnOnce() -> Vec<String>,
) -> Result<Exit, Failure> {
    output::print(format, view, || lines().join("\n"))?;
    Ok(Exit::Done)
}

/// `name: value` lines, indented where they belong to the line above.
#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        let value = value.to_string();
        if !value.is_empty() {
            self.0
                .push(format!("{name}: {}", output::printable(&value)));
        }
    }

    fn put_all(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        let values: Vec<_> = values
            .into_iter()
            .map(|v| format!("  {}", output::printable(&v)))
            .collect();
        if !values.is_empty() {
            self.0.push(format!("{name}:"));
            self.0.extend(values);
        }
    }

    fn put_definition(&mut self, definition: Option<&DefinitionView>) {
        let Some(definition) = definition else {
            self.put("definition", "implicit: announced without a definition");
            return;
        };
        self.put(
            "definition",
            format!(
                "revision {}, created {}, changed {}{}",
                definition.revision,
                show_time(definition.created_at_ms),
                show_time(definition.modified_at_ms),
                match definition.author.as_str() {
                    "" => String::new(),
                    author => format!(" by {author}"),
                }
            ),
        );
        if definition.orphaned {
            let what = "the log lost it; run waypost config restore or waypost config forget";
            self.put("orphaned", what);
        }
        self.put("conflict", definition.conflict.as_deref().unwrap_or(""));
        // A symlink's document is a path and has none.
        if !definition.properties.is_null() {
            self.put_all("properties", fields(&definition.properties));
        }
        let left_out = definition.left_out.iter().map(|left_out| {
            let whole = left_out.property.is_empty();
            let property = if whole {
                "all of it"
            } else {
                left_out.property.as_str()
            };
            format!("{property}: {}", left_out.why)
        });
        self.put_all("not told to gRPC and Envoy", left_out);
    }

    fn put_json<T: Serialize>(&mut self, value: &T) {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.0.extend(fields(&value));
    }
}

/// One line for each field of an object; what is nested stays JSON.
fn fields(value: &Value) -> Vec<String> {
    let Value::Object(entries) = value else {
        return vec![value.to_string()];
    };
    let show = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let line = |(key, value): (&String, &Value)| format!("{key}: {}", show(value));
    entries.iter().map(line).collect()
}

fn cluster_lines(view: &ClusterView, uris: &[UriView], operator: &OperatorView) -> Vec<String> {
    let mut lines = Lines::default();
    let counts = &view.summary.instances;
    lines.put("cluster", &view.summary.name);
    let target = view.summary.symlink_to.as_deref();
    lines.put("symlink to", target.unwrap_or_default());
    lines.put_definition(view.definition.as_ref());
    lines.put("sources", view.sources.join(", "));
    lines.put("services", view.summary.services.join(", "));
    lines.put(
        "instances",
        format!(
            "{} ({} healthy, {} draining, {} unhealthy)",
            counts.total, counts.healthy, counts.draining, counts.unhealthy
        ),
    );
    let health = if view.summary.health_ignored {
        "ignored: too few instances are healthy"
    } else {
        "respected"
    };
    lines.put(
        "health",
        format!(
            "{health} (min_healthy_percent {})",
            view.min_healthy_percent
        ),
    );
    let partitions: Vec<_> = view.d2_partitions.iter().map(ToString::to_string).collect();
    lines.put("D2 partitions", partitions.join(", "));
    lines.put_all("without address", view.unresolved_uris.iter().cloned());
    lines.put_all(
        "IPv6 only, not told to clients of IPv4",
        view.ipv6_only_uris.iter().cloned(),
    );
    if view.ipv4_only > 0 {
        // Nearly all in most fleets, so not by name.
        lines.put("IPv4 only, not told to clients of IPv6", view.ipv4_only);
    }
    for (title, stated) in statements::of_cluster(operator) {
        lines.put_all(title, stated);
    }
    if let Some(load) = &view.load {
        lines.put("load", load_line(load));
        lines.put_all(
            "load by locality",
            load.localities.iter().map(locality_load_line),
        );
    }
    let versions = view.versions.iter().map(|(kind, v)| format!("{kind}: {v}"));
    lines.put_all("versions", versions);
    lines.put_all(
        "uris",
        uris.iter().map(|u| {
            let notes = rows::notes(u);
            let space = if notes.is_empty() { "" } else { "  " };
            format!("{}  {}{space}{notes}", u.uri, u.health.as_str())
        }),
    );
    lines.0
}

/// What clients report that they send, all localities together.
fn load_line(load: &LoadView) -> String {
    let sum = |of: fn(&LocalityLoadView) -> f64| load.localities.iter().map(of).sum::<f64>();
    let (requests, failures) = (
        sum(|locality| locality.requests_per_second),
        sum(|locality| locality.failures_per_second),
    );
    format!(
        "{requests:.1} requests/s, {failures:.1} failures/s, {:.1} dropped/s by {} clients, last report {} ago; in all {} succeeded, {} failed, {} dropped",
        load.dropped_per_second,
        load.reporters,
        show_age(load.age_ms),
        load.succeeded,
        load.failed,
        load.dropped,
    )
}

fn locality_load_line(load: &LocalityLoadView) -> String {
    let place = match (&load.fabric[..], &load.zone[..]) {
        ("", "") => "unknown".to_owned(),
        (fabric, "") => fabric.to_owned(),
        (fabric, zone) => format!("{fabric}/{zone}"),
    };
    format!(
        "{place}  {:.1} requests/s, {:.1} failures/s, {} in progress",
        load.requests_per_second, load.failures_per_second, load.in_progress
    )
}

fn service_lines(view: &ServiceView) -> Vec<String> {
    let mut lines = Lines::default();
    lines.put("service", &view.name);
    lines.put("cluster", &view.cluster);
    lines.put("path", &view.path);
    lines.put_definition(view.definition.as_ref());
    lines.put("sources", view.sources.join(", "));
    lines.0
}

fn callees_lines(view: &CalleesView) -> Vec<String> {
    let mut lines = Lines::default();
    lines.put("application", &view.application);
    lines.put_definition(view.definition.as_ref());
    lines.put("sources", view.sources.join(", "));
    let services = view.services.iter().map(|service| {
        let is_unknown = view.unknown_services.contains(service);
        let note = if is_unknown { "  (not known)" } else { "" };
        format!("{service}{note}")
    });
    if view.services.is_empty() {
        lines.put("services", "none: it calls nobody");
    }
    lines.put_all("services", services);
    lines.0
}

fn uri_lines(view: &UriView) -> Vec<String> {
    let mut lines = Lines::default();
    lines.put("uri", &view.uri);
    lines.put("cluster", &view.cluster);
    lines.put("health", view.health.as_str());
    lines.put("weight", rows::weights(&view.weights));
    if let Some(o) = &view.overridden {
        lines.put("override", statements::override_line(o));
    }
    if let Some(a) = &view.announced {
        let weights = rows::weights(&a.weights);
        lines.put(
            "announces",
            format!("weight {weights}, {}", a.health.as_str()),
        );
    }
    if let Some(e) = &view.evicted {
        let line = statements::eviction_line(e);
        lines.put(
            "evicted",
            format!("{line} (it announced itself again since)"),
        );
    }
    lines.put("host", &view.hostname);
    lines.put("addresses", view.addresses.join(", "));
    lines.put("without address", view.unresolved.as_deref().unwrap_or(""));
    lines.put("application", &view.application);
    lines.put("fabric", &view.fabric);
    lines.put("zone", &view.zone);
    lines.put_all("metadata", fields(&view.metadata));
    lines.put("changed", show_time(view.origin_at_ms));
    lines.put("tracing id", &view.tracing_id);
    lines.put("heartbeat every", show_age(view.heartbeat_ms));
    lines.put("time-to-live", show_age(view.ttl_ms));
    for source in &view.sources {
        let served = if source.served { "served" } else { "backup" };
        lines.put("source", format!("{} ({served})", source.name));
        if let Some(log) = &source.log {
            lines.0.extend(log_lines(log));
        }
    }
    lines.put_all("refused", view.refused.iter().map(rows::refused));
    lines.0
}

fn log_lines(log: &waypost_admin_api::LogFacts) -> Vec<String> {
    let mut lines = if log.offset < 0 {
        vec!["  not read in this log: known from another one, or from a snapshot".to_owned()]
    } else {
        vec![
            format!("  partition {}, offset {}", log.partition, log.offset),
            format!("  appended {}", show_time(log.appended_at_ms)),
            format!("  last heartbeat {} ago", show_age(log.heartbeat_age_ms)),
        ]
    };
    lines.push(format!(
        "  life {}, born {}, change {}",
        log.life_id.as_deref().unwrap_or("without id"),
        show_time(log.born_at_ms),
        log.seq
    ));
    let flags = [
        (log.held, "  its expiry is held"),
        (
            log.unconfirmed,
            "  unconfirmed: no heartbeat of it was read in this log yet",
        ),
        (
            log.wrong_partition,
            "  its key belongs into another partition: check the producer's partitioner",
        ),
    ];
    lines.extend(
        flags
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, l)| (*l).to_owned()),
    );
    lines
}
