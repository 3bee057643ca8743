//! What commands print: tables for people, JSON and YAML for programs.

use std::borrow::Cow;
use std::io::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde::ser::{SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::Value;

use crate::args::OutputFormat;
use crate::exit::Failure;

/// Prints `value` in the form asked for; `table` makes the one for people.
pub(crate) fn print<T: Serialize>(
    format: OutputFormat,
    value: &T,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let bad = |e: &dyn std::fmt::Display| Failure::failed(format!("cannot print: {e}"));
    let text = match format {
        OutputFormat::Table => table(),
        OutputFormat::Json => serde_json::to_string_pretty(value).map_err(|e| bad(&e))?,
        OutputFormat::Yaml => {
            let value = serde_json::to_value(value).map_err(|e| bad(&e))?;
            serde_saphyr::to_string(&Yaml(&value)).map_err(|e| bad(&e))?
        }
    };
    print_line(text.trim_end())
}

/// Prints one line (or several) to standard output. A reader that has seen enough ends the command.
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::reader_left(),
        _ => Failure::failed(format!("cannot write to standard output: {error}")),
    })
}

/// `text` on one line and without what a terminal acts on: anybody can announce anything.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    Cow::Owned(text.chars().map(escape).collect())
}

/// A table without lines, one row a thing; says so when there is nothing.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return "none".to_owned();
    }
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().map(|h| h.to_uppercase()));
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    // Cells are padded on both sides; lines must neither begin nor end with blanks.
    let lines: Vec<_> = table
        .lines()
        .map(|line| {
            line.strip_prefix(' ')
                .unwrap_or(&line)
                .trim_end()
                .to_owned()
        })
        .collect();
    lines.join("\n")
}

/// An age for people: the largest two units.
pub(crate) fn show_age(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        1..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// An instant for people, in UTC; empty for one that no calendar has.
pub(crate) fn show_time(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms)
        .map(|t| t.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
        .unwrap_or_default()
}

/// JSON whose numbers are kept as text inside would come out of a YAML writer as maps.
struct Yaml<'a>(&'a Value);

impl Serialize for Yaml<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(flag) => serializer.serialize_bool(*flag),
            Value::String(text) => serializer.serialize_str(text),
            Value::Number(number) => {
                if let Some(n) = number.as_i64() {
                    serializer.serialize_i64(n)
                } else if let Some(n) = number.as_u64() {
                    serializer.serialize_u64(n)
                } else {
                    serializer.serialize_f64(number.as_f64().unwrap_or(f64::NAN))
                }
            }
            Value::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(&Yaml(item))?;
                }
                seq.end()
            }
            Value::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, &Yaml(value))?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_cannot_act_on_the_terminal_or_begin_a_line() {
        let cases = [
            ("host-1 é", "host-1 é"),
            ("a\nerror: x", "a\\nerror: x"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
        ];
        for (text, expected) in cases {
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn tables_have_no_blanks_at_the_ends_of_lines() {
        let rows = vec![
            vec!["a".into(), "bb".into()],
            vec!["ccc".into(), String::new()],
        ];
        assert_eq!(table(&["x", "y"], rows), "X    Y\na    bb\nccc");
        assert_eq!(table(&["x"], Vec::new()), "none");
    }

    #[test]
    fn ages_are_told_in_two_units() {
        let cases = [
            (5, "5ms"),
            (5_999, "5s"),
            (65_000, "1m5s"),
            (3_600_000, "1h0m"),
            (90_000_000, "1d1h"),
        ];
        for (millis, expected) in cases {
            assert_eq!(show_age(millis), expected);
        }
    }

    #[test]
    fn numbers_in_yaml_are_numbers() {
        let value: Value =
            serde_json::from_str(r#"{"number":9007199254740993,"f":1.5,"t":"5"}"#).unwrap();
        let text = serde_saphyr::to_string(&Yaml(&value)).unwrap();
        assert!(text.contains("number: 9007199254740993"), "{text}");
        assert!(text.contains("f: 1.5"), "{text}");
        assert!(
            text.contains("t: \"5\"") || text.contains("t: '5'"),
            "{text}"
        );
    }
}
