//! What a comparison found, for programs and for people.

use serde::Serialize;
use waypost_admin_api::DigestedKey;

use super::keys::{Difference, What};
use crate::output::show_time;

/// What `status --compare` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Comparison {
    /// The Observer that the others are compared with.
    pub(super) server: String,
    /// The log that it reads.
    pub(super) identity: Option<String>,
    /// The others, as they were given.
    pub(super) others: Vec<Compared>,
}

/// One of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Compared {
    /// Its admin port.
    pub(super) server: String,
    /// Different if one partition is; equal only if all are.
    pub(super) verdict: Verdict,
    /// Why it was not compared, or why no key can be named.
    pub(super) reason: Option<String>,
    /// Every partition in order; empty if none was compared.
    pub(super) partitions: Vec<ComparedPartition>,
    /// A key that shows the difference.
    pub(super) first_difference: Option<Difference>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ComparedPartition {
    /// Its number.
    pub(super) partition: u32,
    /// The tick at which it was compared.
    pub(super) offset: Option<i64>,
    /// Equal, different, or not compared.
    pub(super) verdict: Verdict,
    /// Why it was not compared.
    pub(super) reason: Option<String>,
}

/// What a comparison came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The same.
    Equal,
    /// Not the same.
    Different,
    /// The two have nothing that can be compared.
    NotCompared,
    /// It does not answer.
    Unreachable,
}

impl Compared {
    pub(super) fn of(server: &str, verdict: Verdict) -> Self {
        Self {
            server: server.to_owned(),
            verdict,
            reason: None,
            partitions: Vec::new(),
            first_difference: None,
        }
    }
}

impl ComparedPartition {
    /// Its number and the tick at which it was compared.
    pub(super) fn place(&self) -> Option<(u32, i64)> {
        Some((self.partition, self.offset?))
    }
}

impl Comparison {
    /// Whether every other one is the same.
    pub(super) fn is_equal(&self) -> bool {
        self.others.iter().all(|o| o.verdict == Verdict::Equal)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let identity = self.identity.as_deref().unwrap_or("not read yet");
        let mut lines = vec![format!("{}: reads log {identity}", self.server)];
        lines.extend(self.others.iter().flat_map(Compared::lines));
        lines
    }
}

impl Compared {
    fn lines(&self) -> Vec<String> {
        let of = |verdict| self.partitions.iter().filter(move |p| p.verdict == verdict);
        let equal = of(Verdict::Equal).count();
        let what = match self.verdict {
            Verdict::Equal => format!("equal, {equal} partition(s)"),
            Verdict::Different => format!(
                "different, {} of {} partition(s)",
                of(Verdict::Different).count(),
                self.partitions.len()
            ),
            Verdict::NotCompared => format!("cannot be compared, {equal} partition(s) equal"),
            Verdict::Unreachable => "unreachable".to_owned(),
        };
        let why = self.reason.as_ref().map(|reason| format!(": {reason}"));
        let mut lines = vec![format!(
            "{}: {what}{}",
            self.server,
            why.unwrap_or_default()
        )];
        if let Some(difference) = &self.first_difference {
            lines.push(difference.line());
            lines.extend(difference.here.as_ref().map(|k| key_line("here", k)));
            lines.extend(difference.there.as_ref().map(|k| key_line("there", k)));
        }
        let not_compared = of(Verdict::NotCompared);
        lines.extend(not_compared.filter_map(|p| {
            let reason = p.reason.as_ref()?;
            Some(format!("  partition {}: {reason}", p.partition))
        }));
        lines
    }
}

impl Difference {
    fn line(&self) -> String {
        let what = match self.what {
            What::MissingHere => "is missing here and is there",
            What::MissingThere => "is here and is missing there",
            What::Order => "differs in order",
            What::Content => "differs in content",
        };
        let (cluster, uri) = (&self.cluster, &self.uri);
        format!("  partition {}: {cluster} {uri} {what}", self.partition)
    }
}

fn key_line(side: &str, key: &DigestedKey) -> String {
    let life = key.life_id.as_deref().unwrap_or("without order data");
    let born = key.born_at_ms.map(|ms| format!(", born {}", show_time(ms)));
    format!(
        "    {side}: content {}, life {life}{}, change {}, announced at offset {}",
        key.content,
        born.unwrap_or_default(),
        key.seq,
        key.offset
    )
}
