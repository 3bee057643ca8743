//! How commands end: exit codes and the one line of an error.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

/// How a command ended that did what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done.
    Done,
    /// 1: looked, and what was found is bad (`status`: not ready; `topics check`: mistakes).
    Bad,
    /// 3: `status`: ready, but stale or holding.
    Stale,
    /// The exit code of a COMMAND.
    Command(u8),
}

/// Why a command did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// 1: it was tried and did not work.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self {
            code: 1,
            text: text.into(),
        }
    }

    /// 0, without a word: the reader of standard output has seen enough (`| head`).
    pub(crate) fn reader_left() -> Self {
        Self {
            code: 0,
            text: String::new(),
        }
    }

    /// 2: it was asked wrongly; nothing was tried.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self {
            code: 2,
            text: text.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Says what went wrong, if anything, and turns it into the code of the process.
pub(crate) fn report(result: Result<Exit, Failure>) -> ExitCode {
    match result {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Bad) => ExitCode::from(1),
        Ok(Exit::Stale) => ExitCode::from(3),
        Ok(Exit::Command(code)) => ExitCode::from(code),
        Err(failure) if failure.text.is_empty() => ExitCode::from(failure.code),
        Err(failure) => {
            let mut stderr = std::io::stderr().lock();
            // Nobody to tell if even that fails.
            let _ = writeln!(stderr, "error: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

/// Prints clap's words: help and version are no errors and exit 0, anything else is one line and
/// exits 2.
pub(crate) fn usage_error(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let is_page = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if is_page {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    report(Err(Failure::usage(one_line(&error.to_string()))))
}

/// What clap says over many lines (`error: …`, lists, tips, the usage) without what `--help` says too.
fn one_line(said: &str) -> String {
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let mut words = String::new();
    let mut help = "--help".to_owned();
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(usage) = line.strip_prefix("Usage: ") {
            let command = usage.split_whitespace().take_while(|word| {
                word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
            });
            let command: Vec<_> = command.collect();
            help = format!("{} --help", command.join(" "));
            break;
        }
        if line.starts_with("For more information") {
            break;
        }
        if !words.is_empty() {
            let is_list = words.ends_with(':') || words.ends_with('>');
            words.push_str(if is_list { " " } else { "; " });
        }
        words.push_str(line);
    }
    format!("{words} (see {help})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clap_says_becomes_one_line_that_names_the_help() {
        let cases = [
            (
                "error: the following required arguments were not provided:\n  --cluster <CLUSTER>\n  --uri <URI>\n\nUsage: waypost announce --cluster <CLUSTER> --uri <URI>\n\nFor more information, try '--help'.\n",
                "the following required arguments were not provided: --cluster <CLUSTER> --uri <URI> (see waypost announce --help)",
            ),
            (
                "error: unexpected argument '--no' found\n\n  tip: a similar argument exists: '--node-id'\n\nUsage: waypost bootstrap [OPTIONS] <CLIENT>\n",
                "unexpected argument '--no' found; tip: a similar argument exists: '--node-id' (see waypost bootstrap --help)",
            ),
            (
                "error: invalid value '10' for '--ttl <DURATION>': expected a unit\n\nFor more information, try '--help'.\n",
                "invalid value '10' for '--ttl <DURATION>': expected a unit (see --help)",
            ),
        ];
        for (said, expected) in cases {
            assert_eq!(one_line(said), expected);
        }
    }
}
