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

/// Prints clap's words: help and version are no errors and exit 0, anything else exits 2.
pub(crate) fn usage_error(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
