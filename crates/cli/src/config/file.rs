//! The file of `--config`: TOML whose keys are the names of flags.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::ArgAction;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What a file says, checked against the flags that exist.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    /// Keys outside of tables: for every command that has the flag.
    pub(super) everywhere: HashMap<String, Entry>,
    /// Keys of a `[COMMAND]` table.
    pub(super) by_command: HashMap<String, HashMap<String, Entry>>,
}

/// The values of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) values: Vec<String>,
}

/// A mistake in the file, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigFileError {
    /// It cannot be read at all.
    #[error("cannot read the file of --config, {path}: {why}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        why: String,
    },
    /// One line of it is wrong.
    #[error("{path}:{line}: {what}")]
    Mistake {
        /// The file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong and what is expected.
        what: String,
    },
}

impl ConfigFile {
    pub(super) fn read(path: &Path, command: &clap::Command) -> Result<Self, ConfigFileError> {
        let text = std::fs::read_to_string(path).map_err(|why| ConfigFileError::Read {
            path: path.display().to_string(),
            why: why.to_string(),
        })?;
        Self::parse(path, &text, command)
    }

    pub(super) fn parse(
        path: &Path,
        text: &str,
        command: &clap::Command,
    ) -> Result<Self, ConfigFileError> {
        let mut file = Self {
            path: path.to_owned(),
            everywhere: HashMap::new(),
            by_command: HashMap::new(),
        };
        let table = DeTable::parse(text).map_err(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            file.mistake(line, error.message().replace('\n', ", "))
        })?;
        for (key, value) in table.get_ref() {
            let name = key.get_ref().as_ref();
            if let DeValue::Table(table) = value.get_ref() {
                let line = line_of(text, key.span().start);
                let sub = find_subcommand(command, name).ok_or_else(|| {
                    file.mistake(line, unknown("table", name, subcommands(command)))
                })?;
                let entries = file.read_table(text, table, &[sub])?;
                file.by_command.insert(name.to_owned(), entries);
            } else {
                let mut owners: Vec<_> = command.get_subcommands().collect();
                owners.push(command);
                let entry = file.read_entry(text, key, value, &owners)?;
                file.everywhere.insert(name.to_owned(), entry);
            }
        }
        Ok(file)
    }

    /// The line of `value` for the flag `long`.
    pub(super) fn find_value(&self, long: &str, value: &str) -> Option<usize> {
        let mut tables = self.by_command.values().chain([&self.everywhere]);
        tables.find_map(|entries| {
            let entry = entries.get(long)?;
            // A list in one text is split at its commas before it is checked.
            let has = |v: &String| v == value || v.split(',').any(|part| part == value);
            entry.values.iter().any(has).then_some(entry.line)
        })
    }

    pub(super) fn mistake(&self, line: usize, what: String) -> ConfigFileError {
        ConfigFileError::Mistake {
            path: self.path.display().to_string(),
            line,
            what,
        }
    }

    fn read_table(
        &self,
        text: &str,
        table: &DeTable<'_>,
        owners: &[&clap::Command],
    ) -> Result<HashMap<String, Entry>, ConfigFileError> {
        let entries = table.iter().map(|(key, value)| {
            let entry = self.read_entry(text, key, value, owners)?;
            Ok((key.get_ref().clone().into_owned(), entry))
        });
        entries.collect()
    }

    fn read_entry(
        &self,
        text: &str,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        owners: &[&clap::Command],
    ) -> Result<Entry, ConfigFileError> {
        let line = line_of(text, key.span().start);
        let name = key.get_ref().as_ref();
        let args: Vec<_> = owners
            .iter()
            .flat_map(|command| {
                let stated = |arg: &&clap::Arg| super::is_stated(command.get_name(), arg);
                command.get_arguments().filter(move |arg| !stated(arg))
            })
            .filter(|arg| arg.get_long().is_some_and(is_key))
            .collect();
        let Some(arg) = args.iter().find(|arg| arg.get_long() == Some(name)) else {
            let known = args.iter().filter_map(|a| a.get_long().map(str::to_owned));
            return Err(self.mistake(line, unknown("key", name, known.collect())));
        };
        let values = read_values(value.get_ref()).ok_or_else(|| {
            let what =
                format!("{name} must be a text, a number, true or false, or a list of these");
            self.mistake(line, what)
        })?;
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
        if is_switch && !matches!(values[..], [ref v] if v == "true" || v == "false") {
            return Err(self.mistake(line, format!("{name} must be true or false")));
        }
        let takes_many = matches!(arg.get_action(), ArgAction::Append);
        if values.len() != 1 && !takes_many {
            return Err(self.mistake(line, format!("{name} takes one value, not a list")));
        }
        Ok(Entry { line, values })
    }
}

fn is_key(long: &str) -> bool {
    !super::is_clap_own(long) && long != "config"
}

fn find_subcommand<'a>(command: &'a clap::Command, name: &str) -> Option<&'a clap::Command> {
    command.get_subcommands().find(|sub| sub.get_name() == name)
}

fn subcommands(command: &clap::Command) -> Vec<String> {
    command
        .get_subcommands()
        .map(|c| c.get_name().to_owned())
        .collect()
}

fn unknown(what: &str, name: &str, mut known: Vec<String>) -> String {
    known.sort();
    known.dedup();
    format!(
        "unknown {what} {name:?}; expected one of {}",
        known.join(", ")
    )
}

fn read_values(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::Array(items) => items
            .iter()
            .map(|item| read_scalar(item.get_ref()))
            .collect(),
        scalar => read_scalar(scalar).map(|v| vec![v]),
    }
}

fn read_scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

fn line_of(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().get(..byte).unwrap_or(text.as_bytes());
    before.iter().filter(|b| **b == b'\n').count() + 1
}
