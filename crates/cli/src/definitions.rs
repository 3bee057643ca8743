//! `waypost apply` and `waypost delete`.

mod file;
mod tree;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use waypost_announcer::definitions::{self, DefinitionsError, Mistake, Outcome};
use waypost_core::AnnouncementLog;
use waypost_core::config::Signed;
use waypost_proto::v1 as pb;
use waypost_proto::v1::definition_input::Kind;

use crate::args::{ApplyArgs, DefinitionKindArg, DeleteArgs, OutputFormat, WriteToArgs};
use crate::exit::{Exit, Failure};
use crate::gateway::ask;
use crate::limits::DEFINITION_FILE_BYTES_MAX;
use crate::operator::sign;
use crate::{kafka, output};
use file::Document;

/// One row of the answer.
#[derive(Serialize)]
struct Row {
    kind: &'static str,
    name: String,
    outcome: &'static str,
    revision: u32,
}

pub(crate) async fn apply(args: ApplyArgs) -> Result<Exit, Failure> {
    let signed = sign(&args.author, "waypost apply")?;
    let documents = read_files(&args.file)?;
    let messages: Vec<_> = documents.iter().map(|d| d.message.clone()).collect();
    let inputs = definitions::read_request(&messages).map_err(|e| place(e, &documents))?;
    let rows = match &args.to.kafka {
        Some(brokers) => {
            let log: Arc<dyn AnnouncementLog> = kafka::open(brokers, &args.to.topics)?;
            let changes = definitions::apply(&*log, &inputs, &signed).await;
            let changes = changes.map_err(|e| Failure::failed(e.to_string()))?;
            changes.iter().map(Row::from).collect()
        }
        None => apply_through_gateway(&args.to, messages, &signed).await?,
    };
    print(args.output.output, &rows)
}

pub(crate) async fn delete(args: DeleteArgs) -> Result<Exit, Failure> {
    let signed = sign(&args.author, "waypost delete")?;
    let kind = match args.kind {
        DefinitionKindArg::Cluster => Kind::Cluster,
        DefinitionKindArg::Service => Kind::Service,
        DefinitionKindArg::Symlink => Kind::Symlink,
        DefinitionKindArg::Callees => Kind::Callees,
    };
    let key = definitions::read_key(kind, &args.name).map_err(|m| Failure::usage(m.why))?;
    let row = match &args.to.kafka {
        Some(brokers) => {
            let log: Arc<dyn AnnouncementLog> = kafka::open(brokers, &args.to.topics)?;
            let change = definitions::delete(&*log, key, &signed).await;
            Row::from(&change.map_err(|e| Failure::failed(e.to_string()))?)
        }
        None => delete_through_gateway(&args.to, kind, args.name, &signed).await?,
    };
    print(args.output.output, &[row])
}

fn read_files(paths: &[std::path::PathBuf]) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    let mut mistakes = Vec::new();
    for path in paths {
        let (name, text) = read_text(path)?;
        match file::read(&name, &text) {
            Ok(found) => documents.extend(found),
            Err(found) => mistakes.extend(found),
        }
    }
    if !mistakes.is_empty() {
        return Err(mk_mistakes(mistakes));
    }
    if documents.is_empty() {
        return Err(Failure::usage("there is no definition in what was given"));
    }
    Ok(documents)
}

fn read_text(path: &Path) -> Result<(String, String), Failure> {
    let mut text = String::new();
    let (name, read) = if path.as_os_str() == "-" {
        let stdin = std::io::stdin().lock();
        let read = stdin
            .take(DEFINITION_FILE_BYTES_MAX)
            .read_to_string(&mut text);
        ("standard input".to_owned(), read)
    } else {
        let file = std::fs::File::open(path);
        let read = file.and_then(|f| f.take(DEFINITION_FILE_BYTES_MAX).read_to_string(&mut text));
        (path.display().to_string(), read)
    };
    match read {
        Ok(bytes) if bytes as u64 >= DEFINITION_FILE_BYTES_MAX => Err(Failure::usage(format!(
            "{name} is larger than {DEFINITION_FILE_BYTES_MAX} bytes; apply it in parts"
        ))),
        Ok(_) => Ok((name, text)),
        Err(e) => Err(Failure::failed(format!("cannot read {name}: {e}"))),
    }
}

/// Gives each mistake its file and line.
fn place(error: DefinitionsError, documents: &[Document]) -> Failure {
    let DefinitionsError::Mistakes(mistakes) = error else {
        return Failure::failed(error.to_string());
    };
    mk_mistakes(mistakes.iter().map(|m| place_one(m, documents)).collect())
}

fn place_one(mistake: &Mistake, documents: &[Document]) -> String {
    match documents.get(mistake.index) {
        Some(document) => document.place(&mistake.field, &mistake.why),
        None => mistake.to_string(),
    }
}

fn mk_mistakes(mistakes: Vec<String>) -> Failure {
    let lines = mistakes.join("\n");
    Failure::usage(format!(
        "{lines}\n{} mistake(s); nothing was written",
        mistakes.len()
    ))
}

async fn apply_through_gateway(
    to: &WriteToArgs,
    definitions: Vec<pb::DefinitionInput>,
    signed: &Signed,
) -> Result<Vec<Row>, Failure> {
    let request = pb::ApplyRequest {
        definitions,
        author: signed.author.to_string(),
    };
    let response = ask(&to.gateway, |mut client| {
        let request = request.clone();
        async move { client.apply(request).await }
    })
    .await?;
    Ok(response.results.iter().map(Row::from).collect())
}

async fn delete_through_gateway(
    to: &WriteToArgs,
    kind: Kind,
    name: String,
    signed: &Signed,
) -> Result<Row, Failure> {
    let request = pb::DeleteRequest {
        kind: kind.into(),
        name,
        author: signed.author.to_string(),
    };
    let response = ask(&to.gateway, |mut client| {
        let request = request.clone();
        async move { client.delete(request).await }
    })
    .await?;
    let result = response.result.unwrap_or_default();
    Ok(Row::from(&result))
}

fn print(format: OutputFormat, rows: &[Row]) -> Result<Exit, Failure> {
    output::print(format, &rows, || {
        let lines: Vec<_> = rows.iter().map(Row::show).collect();
        lines.join("\n")
    })?;
    Ok(Exit::Done)
}

impl Row {
    fn show(&self) -> String {
        let Self {
            kind,
            name,
            outcome,
            revision,
        } = self;
        format!("{kind} {name}: {outcome} (revision {revision})")
    }
}

impl From<&definitions::DefinitionChange> for Row {
    fn from(change: &definitions::DefinitionChange) -> Self {
        Self::from(&pb::DefinitionResult::from(change))
    }
}

impl From<&pb::DefinitionResult> for Row {
    fn from(result: &pb::DefinitionResult) -> Self {
        Self {
            kind: match result.kind() {
                Kind::Service => "service",
                Kind::Symlink => "symlink",
                Kind::Callees => "callees",
                Kind::Cluster | Kind::Unspecified => "cluster",
            },
            name: result.name.clone(),
            outcome: Outcome::from(result.outcome()).as_str(),
            revision: result.revision,
        }
    }
}
