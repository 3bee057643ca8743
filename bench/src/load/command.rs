//! What a load is told on its standard input, a command a line; it answers each with a line.

use std::time::Duration;

use anyhow::Context as _;

/// A command. The answer is a [`super::stats::Line`] of what was seen since the last mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Marks, opens streams until there are so many, and answers once the new ones are answered.
    Open {
        /// In this process, all told.
        streams: usize,
        within: Duration,
    },
    /// Forgets what was counted and starts the clock again.
    Mark,
    /// Answers at once.
    Report,
    /// Slow readers stop reading.
    Pause,
    /// Slow readers read again, first of all what has arrived.
    Resume,
    /// Answers once so many were counted since the mark, or time is up.
    Until {
        what: Counted,
        count: u64,
        within: Duration,
    },
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Resources,
    Answered,
    Fresh,
}

impl std::fmt::Display for Command {
    fn fmt(&self, line: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open { streams, within } => {
                write!(line, "open {streams} {}", within.as_millis())
            }
            Self::Mark => line.write_str("mark"),
            Self::Report => line.write_str("report"),
            Self::Pause => line.write_str("pause"),
            Self::Resume => line.write_str("resume"),
            Self::Until {
                what,
                count,
                within,
            } => {
                let what = match what {
                    Counted::Resources => "resources",
                    Counted::Answered => "answered",
                    Counted::Fresh => "fresh",
                };
                write!(line, "until {what} {count} {}", within.as_millis())
            }
        }
    }
}

impl std::str::FromStr for Command {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let within = |word: &str| anyhow::Ok(Duration::from_millis(word.parse()?));
        match words[..] {
            ["open", streams, ms] => Ok(Self::Open {
                streams: streams.parse()?,
                within: within(ms)?,
            }),
            ["mark"] => Ok(Self::Mark),
            ["report"] => Ok(Self::Report),
            ["pause"] => Ok(Self::Pause),
            ["resume"] => Ok(Self::Resume),
            ["until", what, count, ms] => Ok(Self::Until {
                what: match what {
                    "resources" => Counted::Resources,
                    "answered" => Counted::Answered,
                    "fresh" => Counted::Fresh,
                    _ => anyhow::bail!("nothing counts {what:?}"),
                },
                count: count.parse()?,
                within: within(ms)?,
            }),
            _ => None.with_context(|| format!("no command: {line:?}")),
        }
    }
}
