//! Where the values of flags come from: the command line, then `WAYPOST_…` variables, then the file
//! of `--config`, then the default.
//!
//! Variables and keys are made from the flags' names by one rule, so that none can be forgotten.

mod file;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory as _};

use crate::args::Cli;
use file::{ConfigFile, Entry};

pub(crate) use file::ConfigFileError;

/// Why the command line was not understood.
#[derive(Debug)]
pub(crate) enum CommandLineError {
    /// The words of it (or a request for help).
    Usage(clap::Error),
    /// The file of `--config`.
    File(ConfigFileError),
}

/// Reads a command line whose first word is the program.
pub(crate) fn read_command_line(words: Vec<OsString>) -> Result<ArgMatches, CommandLineError> {
    let variable = std::env::var_os("WAYPOST_CONFIG");
    let Some(path) = find_config_path(&words).or(variable.map(PathBuf::from)) else {
        return command()
            .try_get_matches_from(words)
            .map_err(CommandLineError::Usage);
    };
    let plain = command();
    let file = ConfigFile::read(&path, &plain).map_err(CommandLineError::File)?;
    let mut filled = with_file(plain, &file);
    filled
        .try_get_matches_from_mut(words)
        .map_err(|error| match find_culprit(&error, &file) {
            Some(in_file) => CommandLineError::File(in_file),
            None => CommandLineError::Usage(error),
        })
}

/// The whole command line with its variables.
pub(crate) fn command() -> clap::Command {
    let with_variables = |command: clap::Command| {
        let name = command.get_name().to_owned();
        command.mut_args(|arg| match variable_of(&arg) {
            Some(variable) if !is_stated(&name, &arg) => arg.env(variable).hide_env_values(true),
            _ => arg,
        })
    };
    let names: Vec<_> = subcommands(&Cli::command());
    names
        .into_iter()
        .fold(with_variables(Cli::command()), |command, name| {
            command.mut_subcommand(name, with_variables)
        })
}

/// Whether `--to` was said more plainly than `--kafka`, so that records go through the gateway.
/// `None`: both were said on the command line.
pub(crate) fn prefers_gateway(matches: &ArgMatches) -> Option<bool> {
    let rank = |id: &str| match matches.try_contains_id(id).ok()? {
        true => match matches.value_source(id)? {
            ValueSource::CommandLine => Some(3),
            ValueSource::EnvVariable => Some(2),
            _ => Some(1),
        },
        false => None,
    };
    match (rank("to"), rank("kafka")) {
        (Some(3), Some(3)) => None,
        // Equally plain, from variables or the file: Kafka, since only it has no default.
        (to, kafka) => Some(to > kafka),
    }
}

/// `WAYPOST_` and the name of the flag.
fn variable_of(arg: &Arg) -> Option<String> {
    let long = arg.get_long().filter(|l| !is_clap_own(l))?;
    Some(format!("WAYPOST_{}", long.to_uppercase().replace('-', "_")))
}

/// The flags that are no settings.
fn is_clap_own(long: &str) -> bool {
    matches!(long, "help" | "version")
}

/// What an operator states is no setting: it is said on the command line alone, so that a variable or
/// key that is there for another command (the `drain` of `announce`) does nothing by itself.
fn is_stated(command: &str, arg: &Arg) -> bool {
    let states = matches!(command, "set" | "evict" | "release" | "config");
    let is_statement = |long| matches!(long, "weight" | "drain" | "clear" | "all" | "reason");
    states && arg.get_long().is_some_and(is_statement)
}

fn subcommands(command: &clap::Command) -> Vec<String> {
    let names = command.get_subcommands().map(|c| c.get_name().to_owned());
    names.filter(|name| name != "help").collect()
}

/// Looks for `--config` ahead of everything else, since the file says what else there is.
fn find_config_path(words: &[OsString]) -> Option<PathBuf> {
    let mut words = words.iter().skip(1).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().map(PathBuf::from);
        }
        if let Some(path) = word.to_str().and_then(|w| w.strip_prefix("--config=")) {
            return Some(PathBuf::from(path));
        }
    }
    None
}

/// Puts the file's values where the defaults stand.
fn with_file(command: clap::Command, file: &ConfigFile) -> clap::Command {
    let fill = |command: clap::Command, entries: &HashMap<String, Entry>| {
        let name = command.get_name().to_owned();
        command.mut_args(|arg| {
            let entry = arg.get_long().and_then(|long| entries.get(long));
            match entry {
                Some(entry) if !is_stated(&name, &arg) => with_entry(arg, entry),
                _ => arg,
            }
        })
    };
    let names = subcommands(&command);
    names
        .into_iter()
        .fold(fill(command, &file.everywhere), |command, name| {
            command.mut_subcommand(&name, |sub| {
                let sub = fill(sub, &file.everywhere);
                match file.by_command.get(&name) {
                    Some(entries) => fill(sub, entries),
                    None => sub,
                }
            })
        })
}

fn with_entry(arg: Arg, entry: &Entry) -> Arg {
    if matches!(arg.get_action(), ArgAction::SetTrue) && entry.values == ["false"] {
        return arg;
    }
    arg.required(false).default_values(entry.values.clone())
}

/// A value that clap refused and that stands in the file is the file's mistake.
fn find_culprit(error: &clap::Error, file: &ConfigFile) -> Option<ConfigFileError> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let long = text(ContextKind::InvalidArg)?.strip_prefix("--")?;
    let long = long.split([' ', '=']).next()?;
    let value = text(ContextKind::InvalidValue)?;
    let why = std::error::Error::source(error).map_or_else(
        || "is not one of the values that this flag takes".to_owned(),
        ToString::to_string,
    );
    file.find_value(long, value)
        .map(|line| file.mistake(line, format!("bad value {value:?} for {long}: {why}")))
}

#[cfg(test)]
mod tests;
