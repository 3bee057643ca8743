//! The `--kafka-config` file: librdkafka properties, one `name=value` a line.

use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

use rdkafka::ClientConfig;

use super::limits::PROPERTIES_BYTES_MAX;

/// librdkafka properties that a user adds: TLS, SASL, addresses to bind, sizes of buffers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties(Vec<(String, String)>);

impl Properties {
    /// Reads a properties file.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is not a property that may be set.
    pub fn read(path: &Path) -> Result<Self, PropertiesError> {
        let at = |problem| PropertiesError {
            file: Some(path.display().to_string()),
            problem,
        };
        let unreadable = |e: std::io::Error| at(Problem::Unreadable(e.to_string()));
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(PROPERTIES_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > PROPERTIES_BYTES_MAX {
            return Err(at(Problem::TooLarge));
        }
        text.parse().map_err(|e: PropertiesError| at(e.problem))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Values may be secrets: only names are shown.
impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// Why a properties file was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertiesError {
    file: Option<String>,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Unreadable(String),
    TooLarge,
    Line { number: usize, what: String },
}

impl std::error::Error for PropertiesError {}

impl fmt::Display for PropertiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_deref().unwrap_or("Kafka properties");
        match &self.problem {
            Problem::Unreadable(why) => write!(f, "{file}: {why}"),
            Problem::TooLarge => {
                write!(
                    f,
                    "{file}: more than {PROPERTIES_BYTES_MAX} bytes; expected name=value lines"
                )
            }
            Problem::Line { number, what } => write!(f, "{file}:{number}: {what}"),
        }
    }
}

impl FromStr for Properties {
    type Err = PropertiesError;

    /// Lines of `name=value`; blank lines and lines that begin with `#` are skipped, spaces around
    /// names and values too. The last of two lines of one name counts.
    fn from_str(text: &str) -> Result<Self, PropertiesError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = read_line(line).map_err(|what| PropertiesError {
                file: None,
                problem: Problem::Line {
                    number: index + 1,
                    what,
                },
            })?;
            pairs.retain(|(earlier, _)| earlier != name);
            pairs.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self(pairs))
    }
}

fn read_line(line: &str) -> Result<(&str, &str), String> {
    let Some((name, value)) = line.split_once('=') else {
        return Err(format!("{line:?} is not name=value"));
    };
    let (name, value) = (name.trim(), value.trim());
    if let Some((_, reason)) = RULES.iter().find(|(ruled, _)| *ruled == name) {
        return Err(format!("{name} cannot be set: {reason}"));
    }
    // librdkafka knows its own properties and the form of each value. Asking it one by one tells
    // which line is wrong; what only the whole tells (a missing key file) is told by the client.
    let mut config = ClientConfig::new();
    config.set(name, value);
    config.create_native_config().map_err(|e| match e {
        rdkafka::error::KafkaError::ClientConfig(_, why, _, _) => why,
        other => other.to_string(),
    })?;
    Ok((name, value))
}

/// What Waypost decides itself, and why.
const RULES: [(&str, &str); 24] = [
    ("bootstrap.servers", BROKERS),
    ("metadata.broker.list", BROKERS),
    ("acks", DURABLE),
    ("request.required.acks", DURABLE),
    ("enable.idempotence", DURABLE),
    ("enable.gapless.guarantee", DURABLE),
    ("transactional.id", "announcements are not transactions"),
    ("partitioner", PARTITIONER),
    (
        "message.timeout.ms",
        "a record that is older than a time-to-live must not be written",
    ),
    (
        "delivery.timeout.ms",
        "a record that is older than a time-to-live must not be written",
    ),
    ("message.max.bytes", SIZES),
    ("queue.buffering.max.messages", SIZES),
    ("queue.buffering.max.kbytes", SIZES),
    ("queued.max.messages.kbytes", SIZES),
    ("fetch.max.bytes", SIZES),
    (
        "fetch.wait.max.ms",
        "a reader hears that it is at the end when a fetch that was held back is answered",
    ),
    (
        "allow.auto.create.topics",
        "topics need the settings that `waypost topics create` gives them",
    ),
    (
        "topic.metadata.refresh.interval.ms",
        "partitions that are added must be seen within 5 s",
    ),
    ("enable.auto.commit", OFFSETS),
    ("enable.auto.offset.store", OFFSETS),
    ("auto.offset.reset", OFFSETS),
    ("enable.partition.eof", OFFSETS),
    ("isolation.level", OFFSETS),
    ("check.crcs", "damaged records must be noticed"),
];

const BROKERS: &str = "name the brokers with --kafka";
const DURABLE: &str = "an acknowledged change must be on every in-sync replica, once and in order";
const PARTITIONER: &str = "every producer of a key must choose the same partition, by murmur2";
const SIZES: &str = "its bound is part of Waypost's own memory bounds";
const OFFSETS: &str =
    "every Observer reads every partition from where it decides, and commits nothing";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_spaces_are_skipped_and_the_last_value_counts() {
        let text =
            "# TLS\n\nsecurity.protocol = ssl\n ssl.ca.location=/a=b \nsecurity.protocol=plaintext";
        let pairs = [
            ("ssl.ca.location", "/a=b"),
            ("security.protocol", "plaintext"),
        ];
        let properties: Properties = text.parse().unwrap();
        assert_eq!(properties.iter().collect::<Vec<_>>(), pairs);
    }

    #[test]
    fn each_bad_line_is_named_with_what_is_wrong_with_it() {
        let cases = [
            ("a", "1: \"a\" is not name=value"),
            ("#\n\nno.such.thing=1", "3: "),
            ("client.id=x\nsocket.timeout.ms=soon", "2: "),
            ("acks=1", "1: acks cannot be set: "),
            ("partitioner=consistent", "murmur2"),
            ("bootstrap.servers=h:1", "--kafka"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Properties>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Properties::read(Path::new("/nonexistent/kafka.properties")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/nonexistent/kafka.properties: "),
            "{error}"
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let properties: Properties = "sasl.password=hunter2".parse().unwrap();
        assert!(!format!("{properties:?}").contains("hunter2"));
    }
}
