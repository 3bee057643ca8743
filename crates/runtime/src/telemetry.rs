//! The process's log: text or JSON lines on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The process's log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level or filter cannot be read.
    #[error(
        "bad log level {filter:?}: {why}; use error, warn, info, debug, trace, or a filter like info,waypost_xds=debug"
    )]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something in this process set up a log already.
    #[error("the process's log is set up already")]
    Twice,
}

/// Sets up the process's log on standard error. `filter` is a level (`info`) or a filter of
/// `tracing-subscriber` (`info,waypost_xds=debug`).
///
/// # Errors
/// The filter cannot be read, or this was called before.
pub fn init(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    let env_filter = EnvFilter::try_new(filter).map_err(|why| TelemetryError::Filter {
        filter: filter.to_owned(),
        why: why.to_string(),
    })?;
    let base = tracing_subscriber::fmt()
        .with_env_filter(env_filter)
        .with_writer(std::io::stderr);
    let done = match format {
        LogFormat::Text => {
            // Colours are for eyes: a file or a pipe gets plain text.
            let colours = std::io::stderr().is_terminal();
            base.with_target(false)
                .with_ansi(colours)
                .finish()
                .try_init()
        }
        LogFormat::Json => base.json().flatten_event(true).finish().try_init(),
    };
    done.map_err(|_| TelemetryError::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_says_what_is_allowed() {
        let error = init(LogFormat::Text, "waypost=louder").unwrap_err();
        assert!(error.to_string().contains("use error, warn"), "{error}");
    }
}
