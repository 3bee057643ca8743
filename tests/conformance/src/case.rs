//! Cases as text.
//!
//! ```text
//! case xds-056 delta
//! rule: A delta subscription to what does not exist is answered with its name as removed.
//! source: xDS protocol, "Knowing when a requested resource does not exist"
//! with: response_bytes_max=4096
//!   subscribe eds c1
//!   expect eds -c1
//!   set eds c1 v1
//!   expect eds c1=v1
//! ```
//!
//! The head names an id and the variants (`delta`, `sotw` or `both`). `with` sets the server. Then
//! one step a line, indented; `delta:` or `sotw:` before a step limits it to that variant. A type is
//! `cds`, `eds`, `lds`, `rds`, `node`, `urimap`, `uri`, `name`, a type URL as it is,
//! or `none`.
//!
//! | step | what it does |
//! |---|---|
//! | `set T NAME VALUE [BYTES]` | the server has this resource, padded to a size |
//! | `set-for KIND T NAME VALUE` | what clients of a kind get instead |
//! | `endpoints-name CLUSTER NAME` | clients ask for the cluster's endpoints under this name |
//! | `remove T NAME` · `touch T NAME` · `forget-removed` | the resource goes; is told of without a change; the server forgets what went |
//! | `not-loaded WHY` · `loaded` | whether the server may answer |
//! | `stream N [AGENT]` | the steps that follow are of that stream, opened if new |
//! | `subscribe T NAME…` · `unsubscribe T NAME…` | changes what is subscribed (`SotW`: sends the whole set) |
//! | `request T [sub=A,B] [unsub=A] [names=A,B] [nonce=N] [version=V] [irv=A:V,…] [error=TEXT]` | a raw request; nonce `last`, `previous`, `none` or text; version `held`, `old` or text |
//! | `expect T [NAME[=VALUE]]… [-NAME]…` | responses come, of that type, with exactly this, and are confirmed |
//! | `receive T …` | the same, one response, not confirmed |
//! | `ack` · `nack TEXT` | answers the response last received |
//! | `quiet [MS]` | nothing comes |
//! | `sync` | waits until the server has applied all requests so far |
//! | `chunks N` | the responses since the last `expect` began were N messages that count down to 0 |
//! | `version-is same|other AS` · `keep-version AS` | compares the version of the response last received |
//! | `reconnect [versions]` · `reopen` | a new stream that asks for everything again; one that asks for nothing |
//! | `end CODE [TEXT]` | the server ends the stream, with a status that holds the text |
//! | `refused CODE [TEXT]` | the next stream is refused so, before any response |

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail};

/// Which variant a case is played in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Incremental.
    Delta,
    /// State of the world.
    Sotw,
}

impl Variant {
    /// Its word in cases.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::Sotw => "sotw",
        }
    }
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Stable name: the rule's number, and a letter where a rule has several cases.
    pub id: String,
    /// The variants it is played in.
    pub variants: Vec<Variant>,
    /// The rule in one line.
    pub rule: String,
    /// The public source of the rule.
    pub source: String,
    /// Settings of the server, name and value.
    pub with: Vec<(String, String)>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// One line of a case.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line as written.
    pub text: String,
    /// `FILE:LINE`.
    pub place: String,
    /// The only variant that it is for.
    pub only: Option<Variant>,
    /// Its words, the first one what to do.
    pub words: Vec<String>,
}

impl Case {
    /// The rule that a case is about: its id without the letter.
    #[must_use]
    pub fn rule_id(&self) -> &str {
        self.id.trim_end_matches(|c: char| c.is_ascii_lowercase())
    }
}

/// Reads every case of a folder, in order of file and line.
///
/// # Errors
/// A file cannot be read, a line cannot be understood, or an id is there twice.
pub fn read_all(folder: &Path) -> anyhow::Result<Vec<Case>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<_> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == "case"));
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        cases.extend(parse(&name, &text)?);
    }
    let mut ids = BTreeSet::new();
    for case in &cases {
        anyhow::ensure!(ids.insert(&case.id), "case {} is there twice", case.id);
    }
    Ok(cases)
}

/// Reads the cases of one file.
///
/// # Errors
/// A line cannot be understood; the error names it.
pub fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", index + 1);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(head) = line.strip_prefix("case ") {
            cases.push(parse_head(head).with_context(|| place)?);
            continue;
        }
        let case = cases.last_mut();
        let case = case.with_context(|| format!("{place}: a line before the first case"))?;
        parse_line(case, line, &place).with_context(|| place.clone())?;
    }
    for case in &cases {
        let complete = !case.rule.is_empty() && !case.source.is_empty() && !case.steps.is_empty();
        anyhow::ensure!(complete, "case {} lacks rule, source or steps", case.id);
    }
    Ok(cases)
}

fn parse_head(head: &str) -> anyhow::Result<Case> {
    let Some((id, variants)) = head.split_once(' ') else {
        bail!("expected: case ID delta|sotw|both");
    };
    let variants = match variants.trim() {
        "delta" => vec![Variant::Delta],
        "sotw" => vec![Variant::Sotw],
        "both" => vec![Variant::Delta, Variant::Sotw],
        other => bail!("{other:?} is none of delta, sotw, both"),
    };
    Ok(Case {
        id: id.to_owned(),
        variants,
        rule: String::new(),
        source: String::new(),
        with: Vec::new(),
        steps: Vec::new(),
    })
}

fn parse_line(case: &mut Case, line: &str, place: &str) -> anyhow::Result<()> {
    if let Some(rule) = line.strip_prefix("rule:") {
        rule.trim().clone_into(&mut case.rule);
    } else if let Some(source) = line.strip_prefix("source:") {
        source.trim().clone_into(&mut case.source);
    } else if let Some(with) = line.strip_prefix("with:") {
        for setting in with.split_whitespace() {
            let (name, value) = setting.split_once('=').context("expected NAME=VALUE")?;
            case.with.push((name.to_owned(), value.to_owned()));
        }
    } else if line.starts_with(' ') {
        case.steps.push(parse_step(line.trim(), place));
    } else {
        bail!("neither a part of a case nor an indented step: {line:?}");
    }
    Ok(())
}

fn parse_step(text: &str, place: &str) -> Step {
    let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let only = match words.first().map(String::as_str) {
        Some("delta:") => Some(Variant::Delta),
        Some("sotw:") => Some(Variant::Sotw),
        _ => None,
    };
    if only.is_some() {
        words.remove(0);
    }
    Step {
        text: text.to_owned(),
        place: place.to_owned(),
        only,
        words,
    }
}
