//! YAML (and JSON, which is YAML) as a tree that knows the line of every value and keeps numbers as
//! they are spelled.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

use crate::limits::DEFINITION_DEPTH_MAX;

/// Values in one file. An alias counts as often as it is used, so that a small file cannot become a
/// large one.
const NODES_MAX: usize = 5_000_000;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) content: Content,
    /// How many values it holds, itself included.
    size: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Scalar(Value),
    List(Vec<Node>),
    /// In the order of the file, with the line of each key.
    Map(Vec<(String, usize, Node)>),
}

/// A mistake and its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TreeError {
    pub(super) line: usize,
    pub(super) what: String,
}

/// Reads every document; empty ones are left out.
pub(super) fn parse(text: &str) -> Result<Vec<Node>, TreeError> {
    let mut builder = Builder::default();
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|e| mk_scan_error(&e))?;
        builder.take(event, span.start.line())?;
    }
    Ok(builder.documents)
}

impl Node {
    /// The value as JSON.
    pub(super) fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::to_json).collect(),
            Content::Map(entries) => {
                let entries = entries.iter().map(|(k, _, v)| (k.clone(), v.to_json()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }

    /// The line of the place that `path` (`a.b[1].c`) names, or of the innermost part of it that
    /// exists. Keys may hold dots themselves.
    pub(super) fn line_of(&self, path: &str) -> usize {
        match &self.content {
            Content::Map(entries) => {
                let found = entries.iter().find_map(|(key, line, value)| {
                    let rest = path.strip_prefix(key.as_str())?;
                    let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
                    is_whole.then(|| (*line, value, rest.strip_prefix('.').unwrap_or(rest)))
                });
                match found {
                    Some((line, _, "")) => line,
                    // The value may begin on a later line than its key; the key is what one looks for.
                    Some((line, value, rest)) => value.line_of(rest).max(line),
                    None => self.line,
                }
            }
            Content::List(items) => {
                let index = path.strip_prefix('[').and_then(|p| p.split_once(']'));
                let item =
                    index.and_then(|(i, rest)| Some((items.get(i.parse::<usize>().ok()?)?, rest)));
                item.map_or(self.line, |(item, rest)| {
                    item.line_of(rest.strip_prefix('.').unwrap_or(rest))
                })
            }
            Content::Scalar(_) => self.line,
        }
    }
}

#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    open: Vec<Open>,
    by_anchor: HashMap<usize, Node>,
    nodes: usize,
}

/// A list or map that is not closed yet.
struct Open {
    line: usize,
    anchor: usize,
    content: Content,
    /// The key that waits for its value.
    key: Option<(String, usize)>,
    size: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), TreeError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = read_scalar(&text, style, tag.as_deref(), line)?;
                self.add(Content::Scalar(value), 1, line, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.open(Content::List(Vec::new()), line, anchor, tag.as_deref())
            }
            Event::MappingStart(_, anchor, tag) => {
                self.open(Content::Map(Vec::new()), line, anchor, tag.as_deref())
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.add(open.content, open.size, open.line, open.anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => match self.by_anchor.get(&anchor).cloned() {
                Some(node) => self.add(node.content, node.size, line, 0),
                None => Err(mk_error(line, "an alias inside of what it names")),
            },
            Event::DocumentEnd => {
                self.by_anchor.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        content: Content,
        line: usize,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), TreeError> {
        if tag.is_some_and(|t| !matches!(t.core_suffix(), Some("map" | "seq"))) {
            return Err(mk_error(line, "tags are not supported"));
        }
        if self.open.len() >= DEFINITION_DEPTH_MAX {
            let what = format!("nested more than {DEFINITION_DEPTH_MAX} deep");
            return Err(TreeError { line, what });
        }
        self.open.push(Open {
            line,
            anchor,
            content,
            key: None,
            size: 1,
        });
        Ok(())
    }

    fn add(
        &mut self,
        content: Content,
        size: usize,
        line: usize,
        anchor: usize,
    ) -> Result<(), TreeError> {
        self.nodes += size;
        if self.nodes > NODES_MAX {
            return Err(mk_error(line, "too many values in one file"));
        }
        let node = Node {
            line,
            content,
            size,
        };
        if anchor != 0 {
            self.by_anchor.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            if node.content != Content::Scalar(Value::Null) {
                self.documents.push(node);
            }
            return Ok(());
        };
        open.size += node.size;
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map(entries) => match open.key.take() {
                Some((key, key_line)) => entries.push((key, key_line, node)),
                None => open.key = Some((read_key(&node, entries)?, node.line)),
            },
            Content::Scalar(_) => {}
        }
        Ok(())
    }
}

fn read_key(node: &Node, entries: &[(String, usize, Node)]) -> Result<String, TreeError> {
    let key = match &node.content {
        Content::Scalar(Value::String(text)) => text.clone(),
        // `1: x` and `yes: x`: JSON has only texts as keys, and so had whoever wrote this.
        Content::Scalar(value) => value.to_string(),
        _ => return Err(mk_error(node.line, "a key must be a text")),
    };
    if key == "<<" {
        return Err(mk_error(
            node.line,
            "merge keys (<<) are not supported; write the keys out",
        ));
    }
    match entries.iter().find(|(k, _, _)| *k == key) {
        Some((_, line, _)) => Err(TreeError {
            line: node.line,
            what: format!("{key} is here twice; the first is on line {line}"),
        }),
        None => Ok(key),
    }
}

/// Reads a scalar by YAML's core schema.
fn read_scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<Value, TreeError> {
    match tag.map(Tag::core_suffix) {
        Some(Some("str")) => return Ok(Value::from(text)),
        Some(Some("int" | "float" | "bool" | "null")) | None => {}
        Some(_) => return Err(mk_error(line, "tags are not supported")),
    }
    if style != ScalarStyle::Plain && tag.is_none() {
        return Ok(Value::from(text));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => read_number(text).map_or_else(|| Value::from(text), Value::Number),
    })
}

/// A number that JSON can spell, as it is spelled; what only YAML can (`0x1f`, `+5`, `.5`) becomes
/// JSON's spelling of it. `.inf` and `.nan` stay texts: JSON has no such numbers.
fn read_number(text: &str) -> Option<Number> {
    if let Ok(number) = serde_json::from_str::<Number>(text) {
        return Some(number);
    }
    let radix = |prefix, radix| {
        let digits = text.strip_prefix(prefix)?;
        u64::from_str_radix(digits, radix).ok().map(Number::from)
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(number);
    }
    let looks_numeric = text
        .bytes()
        .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
        && text.bytes().any(|b| b.is_ascii_digit());
    let number: f64 = looks_numeric.then(|| text.parse().ok()).flatten()?;
    if let Ok(whole) = text.trim_start_matches('+').parse::<i64>() {
        return Some(Number::from(whole));
    }
    Number::from_f64(number)
}

fn mk_error(line: usize, what: &str) -> TreeError {
    TreeError {
        line,
        what: what.to_owned(),
    }
}

fn mk_scan_error(error: &ScanError) -> TreeError {
    TreeError {
        line: error.marker().line(),
        what: format!("cannot be read as YAML or JSON: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        let nodes = parse(text).unwrap();
        let values: Vec<_> = nodes.iter().map(|n| n.to_json().to_string()).collect();
        values.join("\n")
    }

    #[test]
    fn yaml_and_json_give_the_same_values_and_numbers_keep_their_spelling() {
        let cases = [
            ("a: 1\nb: [x, 'y', \"z\"]\n", r#"{"a":1,"b":["x","y","z"]}"#),
            (
                r#"{"a":9007199254740993,"b":1.10,"c":-0.5}"#,
                r#"{"a":9007199254740993,"b":1.10,"c":-0.5}"#,
            ),
            (
                "a: 0x1f\nb: +5\nc: .5\nd: 007\n",
                r#"{"a":31,"b":5,"c":0.5,"d":7}"#,
            ),
            (
                "a: yes\nb: True\nc: ~\nd: 1.2.3\ne: -x\n",
                r#"{"a":"yes","b":true,"c":null,"d":"1.2.3","e":"-x"}"#,
            ),
            ("a: '1'\nb: !!str 1\n", r#"{"a":"1","b":"1"}"#),
            ("a: &x {k: 1}\nb: *x\n", r#"{"a":{"k":1},"b":{"k":1}}"#),
            (
                "a: 1\n---\n---\n# nothing\n---\nb: 2\n",
                "{\"a\":1}\n{\"b\":2}",
            ),
            (
                r#"{"e":"\u00e9\t\/","s":"\ud83d\ude00"}"#,
                "{\"e\":\"é\\t/\",\"s\":\"😀\"}",
            ),
            ("\t{\"a\":\t[1,\n\t2]}", r#"{"a":[1,2]}"#),
        ];
        for (text, expected) in cases {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_have_a_line() {
        let deep = format!("a:\n  {}{}", "[".repeat(150), "]".repeat(150));
        let cases = [
            ("a: 1\na: 2\n", 2, "twice"),
            ("a: 1\nb: [1\nc: 2\n", 3, ""),
            ("a: !mine 1\n", 1, "tags"),
            ("b: 1\n<<: {}\n", 2, "merge"),
            ("[1]: 2\n", 1, "key"),
            (&deep, 2, "deep"),
        ];
        for (text, line, what) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.what.contains(what), "{text:.40}: {error:?}");
            assert_eq!(error.line, line, "{text:.40}: {error:?}");
        }
    }

    #[test]
    fn a_small_file_does_not_become_a_large_one() {
        let mut text = "a0: &a0 [1]\n".to_owned();
        for i in 1..40 {
            let last = i - 1;
            text.push_str(&format!("a{i}: &a{i} [*a{last}, *a{last}]\n"));
        }
        assert!(parse(&text).unwrap_err().what.contains("too many"));
    }

    #[test]
    fn places_are_found_by_path() {
        let text =
            "kind: Cluster\nproperties:\n  a.b: 1\n  list:\n    - x\n    - y: 1\n  empty: {}\n";
        let nodes = parse(text).unwrap();
        let cases = [
            ("kind", 1),
            ("properties.a.b", 3),
            ("properties.list", 4),
            ("properties.list[0]", 5),
            ("properties.list[1].y", 6),
            ("properties.empty.missing", 7),
            ("nowhere", 1),
        ];
        for (path, line) in cases {
            assert_eq!(nodes[0].line_of(path), line, "{path}");
        }
    }
}
