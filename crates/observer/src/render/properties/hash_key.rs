//! What of a request decides which instance it goes to.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Keys are tried in this order; a request that has none of them goes anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HashKeys {
    /// The value of this header, in lower case (`hash_header`, a property of Waypost's own).
    pub(crate) header: Option<String>,
    /// A part of the path and query (`hashMethod` `uriRegex`).
    pub(crate) path: Option<PathKey>,
}

/// A part of a path with its query: where the whole of it matches `regex`, what the groups of that
/// caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathKey {
    /// In the syntax that RE2 and D2's Java have in common.
    pub(crate) regex: String,
    /// All groups one after another.
    pub(crate) substitution: String,
}

/// How many expressions are taken: RE2's substitutions name groups by one digit.
const REGEXES_MAX: usize = 9;

/// How long one may be, bytes: RE2 takes programs of a bounded size only.
const REGEX_BYTES_MAX: usize = 256;

/// Instructions of RE2 that the whole may have: an Envoy refuses more unless its own configuration permits
/// them (`re2.max_program_size.error_level`).
const PROGRAM_SIZE_MAX: u64 = 100;

/// Of these, what stands around the expressions has so many.
const PROGRAM_SIZE_AROUND: u64 = 8;

/// Syntax that RE2, Java or the parser below does not know or reads otherwise: groups with flags or names,
/// sets of sets.
const NOT_COMMON: [&str; 12] = [
    "(?i", "(?m", "(?s", "(?x", "(?u", "(?U", "(?R", "(?-", "(?P", "(?<", "&&", "[[",
];

/// A header's name in lower case, if it can be one that clients send and gRPC reads (gRFC A42: none of
/// binary content, no pseudo-header).
pub(super) fn to_header(name: &str) -> Result<String, String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let name = name.to_ascii_lowercase();
    if name.chars().all(is_token) && !name.ends_with("-bin") {
        Ok(name)
    } else {
        Err("the name of a header, not of a binary one".to_owned())
    }
}

/// One expression for all: D2 takes the groups of the first that is found anywhere in the URI of the
/// request. Proxies have the path and query of it.
pub(super) fn to_path_key(regexes: &[String]) -> Result<PathKey, String> {
    if regexes.is_empty() || regexes.len() > REGEXES_MAX {
        return Err(format!("1 to {REGEXES_MAX} expressions"));
    }
    let mut size = PROGRAM_SIZE_AROUND;
    for regex in regexes {
        size = size.saturating_add(check_regex(regex)?).saturating_add(1);
    }
    if size > PROGRAM_SIZE_MAX {
        return Err(format!(
            "expressions of at most {PROGRAM_SIZE_MAX} instructions of RE2 together, about as many characters"
        ));
    }
    let any: Vec<_> = regexes.iter().map(|regex| format!("(?:{regex})")).collect();
    let groups = (1..=regexes.len()).map(|group| format!("\\{group}"));
    Ok(PathKey {
        regex: format!("^.*?(?:{}).*$", any.join("|")),
        substitution: groups.collect(),
    })
}

/// An Envoy refuses all routes for one expression that its RE2 cannot read. The size of its program.
fn check_regex(regex: &str) -> Result<u64, String> {
    if regex.contains("://") {
        return Err("expressions over a path and query, without scheme and host".to_owned());
    }
    let known = "expressions in the syntax that RE2 and Java have in common".to_owned();
    if regex.len() > REGEX_BYTES_MAX
        || NOT_COMMON.iter().any(|syntax| regex.contains(syntax))
        || has_odd_escape(regex)
        || has_odd_repetition(regex)
    {
        return Err(known);
    }
    let mut parser = ParserBuilder::new().unicode(false).utf8(false).build();
    let parsed = parser.parse(regex).map_err(|_| known)?;
    match parsed.properties().explicit_captures_len() {
        1 => Ok(program_size(&parsed)),
        _ => Err("expressions with one group each".to_owned()),
    }
}

/// Instructions that RE2 makes of an expression, or a few more; it reads bytes, not characters.
fn program_size(parsed: &Hir) -> u64 {
    match parsed.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Bytes(class)) => class.ranges().len() as u64 + 1,
        HirKind::Class(Class::Unicode(class)) => class.ranges().len() as u64 + 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            let is_fixed = repetition.max == Some(repetition.min);
            let once = program_size(&repetition.sub).saturating_add(u64::from(!is_fixed));
            u64::from(times).saturating_mul(once).saturating_add(1)
        }
        HirKind::Capture(capture) => program_size(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) => program_size_of_all(parts),
        HirKind::Alternation(parts) => {
            program_size_of_all(parts).saturating_add(parts.len() as u64)
        }
    }
}

fn program_size_of_all(parts: &[Hir]) -> u64 {
    parts.iter().map(program_size).fold(0, u64::saturating_add)
}

/// Escapes of punctuation and of the classes that mean the same to all.
fn has_odd_escape(regex: &str) -> bool {
    let mut chars = regex.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            let escaped = chars.next().unwrap_or('z');
            if !escaped.is_ascii_punctuation() && !"dDwWsS".contains(escaped) {
                return true;
            }
        }
    }
    false
}

/// A repetition of a repetition (`a*+`, possessive to Java, refused by RE2), or one of a thousand and
/// more (refused by RE2).
fn has_odd_repetition(regex: &str) -> bool {
    let (mut operators, mut digits, mut escaped) = (0, 0, false);
    for c in regex.chars() {
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
        operators = match c {
            _ if escaped => 0,
            '*' | '+' | '{' | '}' if operators > 0 => return true,
            '*' | '+' | '}' => 1,
            // After another operator it makes that one lazy.
            '?' => operators + 1,
            _ => 0,
        };
        if operators > 2 || digits > 3 {
            return true;
        }
        escaped = c == '\\' && !escaped;
    }
    false
}
