//! A file of definitions: documents with `kind`, `name`, `cluster`, `path`, `properties` and `services`.

use serde_json::Value;
use waypost_proto::v1 as pb;
use waypost_proto::v1::definition_input::Kind;

use super::tree::{self, Content, Node};

const KEYS: &str = "kind, name, cluster, path, properties, services";

/// One definition and where it stands.
#[derive(Debug)]
pub(super) struct Document {
    /// As it is sent.
    pub(super) message: pb::DefinitionInput,
    file: String,
    node: Node,
}

/// Reads every definition of a file, or every mistake that keeps one from being read.
pub(super) fn read(file: &str, text: &str) -> Result<Vec<Document>, Vec<String>> {
    let nodes = tree::parse(text).map_err(|e| vec![format!("{file}:{}: {}", e.line, e.what)])?;
    let mut documents = Vec::new();
    let mut mistakes = Vec::new();
    for node in nodes {
        match read_message(&node) {
            Ok(message) => documents.push(Document {
                message,
                file: file.to_owned(),
                node,
            }),
            Err(found) => mistakes.extend(
                found
                    .into_iter()
                    .map(|(line, what)| format!("{file}:{line}: {what}")),
            ),
        }
    }
    if mistakes.is_empty() {
        Ok(documents)
    } else {
        Err(mistakes)
    }
}

impl Document {
    /// A mistake with its place, for people.
    pub(super) fn place(&self, field: &str, why: &str) -> String {
        let line = self.node.line_of(field);
        format!("{}:{line}: {field}: {why}", self.file)
    }
}

fn read_message(node: &Node) -> Result<pb::DefinitionInput, Vec<(usize, String)>> {
    let Content::Map(entries) = &node.content else {
        let what = format!("a definition is a map with the keys {KEYS}");
        return Err(vec![(node.line, what)]);
    };
    let mut message = pb::DefinitionInput::default();
    let mut mistakes = Vec::new();
    for (key, line, value) in entries {
        let mut note = |what: String| mistakes.push((*line, format!("{key}: {what}")));
        let text = read_text(value);
        let read = match key.as_str() {
            "kind" => text.and_then(|t| read_kind(&t).map(|kind| message.set_kind(kind))),
            "name" => text.map(|t| message.name = t),
            "cluster" => text.map(|t| message.cluster = t),
            "path" => text.map(|t| message.path = t),
            "services" => read_services(value).map(|services| message.services = services),
            "properties" => read_properties(value).map(|json| message.properties_json = json),
            _ => Err(format!("unknown key; a definition has {KEYS}")),
        };
        if let Err(what) = read {
            note(what);
        }
    }
    if mistakes.is_empty() {
        Ok(message)
    } else {
        Err(mistakes)
    }
}

fn read_kind(text: &str) -> Result<Kind, String> {
    match text {
        "Cluster" | "cluster" => Ok(Kind::Cluster),
        "Service" | "service" => Ok(Kind::Service),
        "Symlink" | "symlink" => Ok(Kind::Symlink),
        "Callees" | "callees" => Ok(Kind::Callees),
        other => Err(format!(
            "is {other:?}; expected Cluster, Service, Symlink or Callees"
        )),
    }
}

fn read_text(node: &Node) -> Result<String, String> {
    match &node.content {
        Content::Scalar(Value::String(text)) => Ok(text.clone()),
        // A cluster may be called 42.
        Content::Scalar(Value::Number(number)) => Ok(number.to_string()),
        _ => Err("must be a text".to_owned()),
    }
}

fn read_services(node: &Node) -> Result<Vec<String>, String> {
    match &node.content {
        Content::List(items) => items.iter().map(read_text).collect(),
        Content::Scalar(Value::Null) => Ok(Vec::new()),
        _ => Err("must be a list of services".to_owned()),
    }
}

fn read_properties(node: &Node) -> Result<String, String> {
    match &node.content {
        Content::Map(_) => Ok(node.to_json().to_string()),
        Content::Scalar(Value::Null) => Ok(String::new()),
        _ => Err("must be a map of D2 properties".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_read_as_they_are_written() {
        let text = "kind: Cluster\nname: profile\nproperties: {a: 1.0}\n---\n{\"kind\":\"Service\",\"name\":\"r\",\"cluster\":\"profile\",\"path\":\"/p\"}\n---\nkind: Callees\nname: app\nservices: [r, 42]\n";
        let documents = read("d.yaml", text).unwrap();
        let messages: Vec<_> = documents.into_iter().map(|d| d.message).collect();
        assert_eq!(
            messages,
            [
                pb::DefinitionInput {
                    kind: Kind::Cluster.into(),
                    name: "profile".into(),
                    properties_json: "{\"a\":1.0}".into(),
                    ..Default::default()
                },
                pb::DefinitionInput {
                    kind: Kind::Service.into(),
                    name: "r".into(),
                    cluster: "profile".into(),
                    path: "/p".into(),
                    ..Default::default()
                },
                pb::DefinitionInput {
                    kind: Kind::Callees.into(),
                    name: "app".into(),
                    services: vec!["r".into(), "42".into()],
                    ..Default::default()
                },
            ]
        );
    }

    #[test]
    fn each_mistake_names_file_line_and_field() {
        let text = "kind: Klaster\nname: [a]\nproperty: {}\nproperties: 5\n---\n- 1\n";
        assert_eq!(
            read("d.yaml", text).unwrap_err(),
            [
                "d.yaml:1: kind: is \"Klaster\"; expected Cluster, Service, Symlink or Callees",
                "d.yaml:2: name: must be a text",
                "d.yaml:3: property: unknown key; a definition has kind, name, cluster, path, properties, services",
                "d.yaml:4: properties: must be a map of D2 properties",
                "d.yaml:6: a definition is a map with the keys kind, name, cluster, path, properties, services",
            ]
        );
    }
}
