//! `waypost set`, `evict`, `release` and `config`: an operator's hand.

use std::sync::Arc;

use serde::Serialize;
use waypost_announcer::operator::{self, OperatorError, SetOutcome};
use waypost_core::config::{OverrideEffect, Signed};
use waypost_core::{AnnouncementLog, InstanceKey, ReleaseScope};
use waypost_proto::v1 as pb;
use waypost_proto::v1::restore_request::Action;
use waypost_proto::v1::set_request::Effect;
use waypost_runtime::WallClock;

use crate::args::{
    AuthorArgs, ConfigAction, ConfigArgs, EvictArgs, OutputFormat, ReleaseArgs, SetArgs,
    WriteToArgs,
};
use crate::exit::{Exit, Failure};
use crate::gateway::ask;
use crate::{kafka, output};

/// What became of an override.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct SetRow {
    cluster: String,
    uri: String,
    outcome: &'static str,
    announced: Option<bool>,
}

/// What became of an eviction.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct EvictRow {
    cluster: String,
    uri: String,
    announced: Option<bool>,
    partition: u32,
    offset: i64,
}

/// What became of a release.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ReleaseRow {
    cluster: Option<String>,
    held: Option<u64>,
}

/// One orphaned record that was decided.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ConfigRow {
    kind: String,
    name: String,
    outcome: &'static str,
}

pub(crate) async fn set(args: SetArgs) -> Result<Exit, Failure> {
    let signed = sign(&args.author, &args.reason)?;
    let effect = match args.weight {
        Some(weight) => Some(OverrideEffect::Weight(weight)),
        None => args.drain.then_some(OverrideEffect::Drain),
    };
    let instance = InstanceKey {
        cluster: args.cluster,
        uri: args.uri,
    };
    let (outcome, announced) = match open(&args.to)? {
        Some(log) => {
            let outcome = operator::set_override(&*log, &instance, effect, &signed).await;
            (outcome.map_err(fail)?, None)
        }
        None => set_through_gateway(&args.to, &instance, effect, &signed).await?,
    };
    let row = SetRow {
        cluster: instance.cluster.to_string(),
        uri: instance.uri.to_string(),
        outcome: outcome.as_str(),
        announced,
    };
    print(args.output.output, &row, || row.show(effect))
}

async fn set_through_gateway(
    to: &WriteToArgs,
    instance: &InstanceKey,
    effect: Option<OverrideEffect>,
    signed: &Signed,
) -> Result<(SetOutcome, Option<bool>), Failure> {
    let request = pb::SetRequest {
        cluster: instance.cluster.to_string(),
        uri: instance.uri.to_string(),
        effect: Some(match effect {
            Some(OverrideEffect::Weight(weight)) => Effect::Weight(weight.get()),
            Some(OverrideEffect::Drain) => Effect::Drain(true),
            None => Effect::Clear(true),
        }),
        reason: signed.reason.to_string(),
        author: signed.author.to_string(),
    };
    let response = ask(&to.gateway, |mut client| {
        let request = request.clone();
        async move { client.set(request).await }
    })
    .await?;
    use pb::set_response::Outcome;
    let outcome = match response.outcome() {
        Outcome::Set => SetOutcome::Set,
        Outcome::Changed => SetOutcome::Changed,
        Outcome::Unchanged => SetOutcome::Unchanged,
        Outcome::Cleared => SetOutcome::Cleared,
        Outcome::Absent => SetOutcome::Absent,
    };
    Ok((outcome, response.announced))
}

pub(crate) async fn evict(args: EvictArgs) -> Result<Exit, Failure> {
    let signed = sign(&args.author, &args.reason)?;
    let instance = InstanceKey {
        cluster: args.cluster,
        uri: args.uri,
    };
    let (partition, offset, announced) = match open(&args.to)? {
        Some(log) => {
            let purge = operator::evict(&*log, &instance, &signed).await;
            let purge = purge.map_err(fail)?;
            (purge.partition.0, purge.offset.0, None)
        }
        None => {
            let request = pb::EvictRequest {
                cluster: instance.cluster.to_string(),
                uri: instance.uri.to_string(),
                reason: signed.reason.to_string(),
                author: signed.author.to_string(),
            };
            let response = ask(&args.to.gateway, |mut client| {
                let request = request.clone();
                async move { client.evict(request).await }
            })
            .await?;
            let purge = response.purge.unwrap_or_default();
            (purge.partition, purge.offset, response.announced)
        }
    };
    let row = EvictRow {
        cluster: instance.cluster.to_string(),
        uri: instance.uri.to_string(),
        announced,
        partition,
        offset,
    };
    print(args.output.output, &row, || row.show())
}

pub(crate) async fn release(args: ReleaseArgs) -> Result<Exit, Failure> {
    let signed = sign(&args.author, &args.reason)?;
    let held = match open(&args.to)? {
        Some(log) => {
            let scope = args.cluster.clone();
            let scope = scope.map_or(ReleaseScope::All, ReleaseScope::Cluster);
            let released = operator::release(&*log, &scope, &signed).await;
            released.map_err(fail)?;
            None
        }
        None => {
            let request = pb::ReleaseRequest {
                cluster: args
                    .cluster
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                all: args.all,
                reason: signed.reason.to_string(),
                author: signed.author.to_string(),
            };
            let response = ask(&args.to.gateway, |mut client| {
                let request = request.clone();
                async move { client.release(request).await }
            })
            .await?;
            response.held
        }
    };
    let row = ReleaseRow {
        cluster: args.cluster.map(|name| name.to_string()),
        held,
    };
    print(args.output.output, &row, || row.show())
}

pub(crate) async fn config(args: ConfigArgs) -> Result<Exit, Failure> {
    let (action, outcome, default) = match args.action {
        ConfigAction::Restore => (Action::Restore, "restored", "waypost config restore"),
        ConfigAction::Forget => (Action::Forget, "forgotten", ""),
    };
    let signed = sign(&args.author, args.reason.as_deref().unwrap_or(default))?;
    let request = pb::RestoreRequest {
        action: action.into(),
        names: args.name,
        all: args.all,
        reason: signed.reason.to_string(),
        author: signed.author.to_string(),
    };
    let response = ask(&args.gateway, |mut client| {
        let request = request.clone();
        async move { client.restore(request).await }
    })
    .await?;
    let rows: Vec<_> = response
        .records
        .into_iter()
        .map(|record| ConfigRow {
            kind: record.kind,
            name: record.name,
            outcome,
        })
        .collect();
    print(args.output.output, &rows, || {
        if rows.is_empty() {
            return format!("nothing is left to be {outcome}");
        }
        let lines: Vec<_> = rows
            .iter()
            .map(|row| format!("{}: {outcome}", row.name))
            .collect();
        lines.join("\n")
    })
}

/// Who says it, when and why.
pub(crate) fn sign(author: &AuthorArgs, reason: &str) -> Result<Signed, Failure> {
    let author = author.author.clone().unwrap_or_else(author_default);
    let signed = operator::sign(&author, reason, WallClock::system().now());
    signed.map_err(|error| Failure::usage(format!("--{error}")))
}

/// `USER@HOST`.
fn author_default() -> String {
    let variables = ["USER", "LOGNAME"].into_iter();
    let mut user = variables.filter_map(|name| std::env::var(name).ok());
    let user = user.find(|name| !name.is_empty());
    let host = gethostname::gethostname();
    format!(
        "{}@{}",
        user.as_deref().unwrap_or("unknown"),
        host.to_string_lossy()
    )
}

/// The log, where it is written to without a gateway.
fn open(to: &WriteToArgs) -> Result<Option<Arc<dyn AnnouncementLog>>, Failure> {
    let brokers = to.kafka.as_ref();
    brokers
        .map(|brokers| {
            let log: Arc<dyn AnnouncementLog> = kafka::open(brokers, &to.topics)?;
            Ok(log)
        })
        .transpose()
}

fn fail(error: OperatorError) -> Failure {
    Failure::failed(error.to_string())
}

fn print<T: Serialize>(
    format: OutputFormat,
    value: &T,
    lines: impl FnOnce() -> String,
) -> Result<Exit, Failure> {
    output::print(format, value, lines)?;
    Ok(Exit::Done)
}

impl SetRow {
    fn show(&self, effect: Option<OverrideEffect>) -> String {
        let effect = match effect {
            Some(OverrideEffect::Weight(weight)) => format!("weight {}", weight.get()),
            Some(OverrideEffect::Drain) => "draining".to_owned(),
            None => "what it announces is served again".to_owned(),
        };
        let Self {
            cluster,
            uri,
            outcome,
            announced,
        } = self;
        let mut line = format!("{cluster} {uri}: {outcome}");
        if *outcome == SetOutcome::Absent.as_str() {
            line.push_str(" (nothing was set)");
            return line;
        }
        line = format!("{line} ({effect})");
        if *announced == Some(false) && *outcome != SetOutcome::Cleared.as_str() {
            line.push_str("; nobody announces it now: this stands for when it comes");
        }
        line
    }
}

impl EvictRow {
    fn show(&self) -> String {
        let note = match self.announced {
            Some(false) => "; nobody announced it",
            _ => "; a living announcer is back with its next beat",
        };
        format!("{} {}: evicted{note}", self.cluster, self.uri)
    }
}

impl ReleaseRow {
    fn show(&self) -> String {
        let what = match &self.cluster {
            Some(name) => format!("cluster {name}"),
            None => "all clusters".to_owned(),
        };
        let held = match self.held {
            Some(1) => "1 expiry was held".to_owned(),
            Some(count) => format!("{count} expiries were held"),
            None => "how many expiries were held is not known here".to_owned(),
        };
        format!("{what}: released; {held}")
    }
}

#[cfg(test)]
mod tests {
    use waypost_core::config::Weight;

    use super::*;

    #[test]
    fn what_is_set_is_said_and_whether_anybody_is_there() {
        let half = Some(OverrideEffect::Weight(Weight::new(0.5).unwrap()));
        let cases = [
            ("set", Some(true), half, "c u: set (weight 0.5)"),
            (
                "changed",
                Some(false),
                Some(OverrideEffect::Drain),
                "c u: changed (draining); nobody announces it now: this stands for when it comes",
            ),
            ("unchanged", None, half, "c u: unchanged (weight 0.5)"),
            (
                "cleared",
                Some(false),
                None,
                "c u: cleared (what it announces is served again)",
            ),
            ("absent", Some(true), None, "c u: absent (nothing was set)"),
        ];
        for (outcome, announced, effect, expected) in cases {
            let row = SetRow {
                cluster: "c".to_owned(),
                uri: "u".to_owned(),
                outcome,
                announced,
            };
            assert_eq!(row.show(effect), expected);
        }
    }

    #[test]
    fn an_author_is_a_user_at_a_host() {
        let author = author_default();
        let (user, host) = author.split_once('@').unwrap();
        assert!(!user.is_empty() && !host.is_empty(), "{author}");
    }
}
