//! Values of a D2 document.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;

/// A property that is one of those which are translated, and was not, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Where in the document it stands, its keys joined by slashes; empty for the whole document.
    pub(crate) property: String,
    /// What is wrong with it.
    pub(crate) why: String,
}

/// How much of a value that was not expected is shown, bytes.
const SHOWN_BYTES_MAX: usize = 200;

/// A document that is being read, and what could not be.
pub(super) struct Reader {
    document: Value,
    left_out: Vec<LeftOut>,
}

/// What a value says, or what would have been expected of it.
pub(super) type Parsed<T> = Result<T, String>;

impl Reader {
    pub(super) fn new(document: &[u8]) -> Self {
        let mut reader = Self {
            document: Value::Null,
            left_out: Vec::new(),
        };
        match serde_json::from_slice(document) {
            Ok(document @ Value::Object(_)) => reader.document = document,
            // A definition of nothing but a name.
            _ if document.is_empty() => {}
            _ => reader.leave_out("", "not a JSON object"),
        }
        reader
    }

    /// The value at a JSON pointer (RFC 6901) as `parse` reads it; `None` where there is none, or one
    /// that it does not.
    pub(super) fn read<T>(
        &mut self,
        pointer: &str,
        parse: impl FnOnce(&Value) -> Parsed<T>,
    ) -> Option<T> {
        let value = self.document.pointer(pointer)?;
        match parse(value) {
            _ if value.is_null() => None,
            Ok(parsed) => Some(parsed),
            Err(expected) => {
                let why = format!("expected {expected}, not {}", shorten(value));
                self.leave_out(pointer, why);
                None
            }
        }
    }

    /// A member of the object at `pointer`, spelled `likeThis` or `like_this`: Envoy's own properties
    /// have both forms (protobuf, JSON mapping).
    pub(super) fn read_member<T>(
        &mut self,
        pointer: &str,
        member: &str,
        parse: impl FnOnce(&Value) -> Parsed<T>,
    ) -> Option<T> {
        let mut spelled = format!("{pointer}/{member}");
        if !self.has(&spelled) {
            spelled = format!("{pointer}/{}", to_snake_case(member));
        }
        self.read(&spelled, parse)
    }

    pub(super) fn has(&self, pointer: &str) -> bool {
        self.document.pointer(pointer).is_some_and(|v| !v.is_null())
    }

    pub(super) fn leave_out(&mut self, pointer: &str, why: impl Into<String>) {
        self.left_out.push(LeftOut {
            property: pointer.trim_start_matches('/').to_owned(),
            why: why.into(),
        });
    }

    pub(super) fn finish(self) -> Vec<LeftOut> {
        self.left_out
    }
}

/// The text of a value, and no more of it than people read.
fn shorten(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > SHOWN_BYTES_MAX {
        text.truncate(text.floor_char_boundary(SHOWN_BYTES_MAX));
        text.push('…');
    }
    text
}

fn to_snake_case(camel_case: &str) -> String {
    let mut snake_case = String::with_capacity(camel_case.len() + 4);
    for c in camel_case.chars() {
        if c.is_ascii_uppercase() || c.is_ascii_digit() {
            snake_case.push('_');
        }
        snake_case.push(c.to_ascii_lowercase());
    }
    snake_case
}

/// A boolean or, as D2 reads them, the word for one.
pub(super) fn flag(value: &Value) -> Parsed<bool> {
    let word = || match value.as_str()?.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    };
    value
        .as_bool()
        .or_else(word)
        .ok_or_else(|| "true or false".to_owned())
}

pub(super) fn text(value: &Value) -> Parsed<String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| "a text".to_owned())
}

pub(super) fn texts(value: &Value) -> Parsed<Vec<String>> {
    let values = value.as_array();
    let texts = values.and_then(|values| values.iter().map(|v| text(v).ok()).collect());
    texts.ok_or_else(|| "a list of texts".to_owned())
}

pub(super) fn object(value: &Value) -> Parsed<()> {
    let is_object = value.is_object().then_some(());
    is_object.ok_or_else(|| "an object".to_owned())
}

/// A number in a range.
pub(super) fn number(range: RangeInclusive<f64>) -> impl Fn(&Value) -> Parsed<f64> {
    move |value| {
        let found = find_number(value).filter(|number| range.contains(number));
        found.ok_or_else(|| format!("a number of {} to {}", range.start(), range.end()))
    }
}

/// A whole number in a range.
pub(super) fn count(range: RangeInclusive<u32>) -> impl Fn(&Value) -> Parsed<u32> {
    move |value| {
        // Text of a double without a fraction is that of the integer.
        let found = find_number(value).and_then(|number| number.to_string().parse().ok());
        let found = found.filter(|number| range.contains(number));
        found.ok_or_else(|| format!("a whole number of {} to {}", range.start(), range.end()))
    }
}

/// Milliseconds, more than none. D2 keeps them in 32 bits with a sign.
pub(super) fn millis(value: &Value) -> Parsed<Duration> {
    let millis = count(1..=u32::MAX / 2)(value);
    let millis = millis.map_err(|_| "milliseconds, 1 to 2147483647".to_owned())?;
    Ok(Duration::from_millis(millis.into()))
}

/// A duration as protobuf writes it in JSON (`"1.5s"`), more than none and at most a day: longer ones
/// are mistakes of unit.
pub(super) fn duration(value: &Value) -> Parsed<Duration> {
    const DAY: f64 = 86_400.0;
    let seconds = value.as_str().and_then(|text| text.strip_suffix('s'));
    let seconds = seconds.and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| (0.001..=DAY).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a duration such as \"30s\", at most a day".to_owned())
}

fn find_number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    number.filter(|number| number.is_finite())
}
