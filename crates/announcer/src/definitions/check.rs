//! What a definition may say. A D2 client that meets a property of the wrong JSON type throws the
//! whole document away, so types are checked here, where a person is looking.
//!
//! Sources: rest.li `ClusterPropertiesJsonSerializer`, `ServicePropertiesJsonSerializer`,
//! `PropertyKeys` and the schemas under `d2-schemas/`. Properties that are not listed pass as they
//! are: D2 ignores what it does not know.

use serde_json::{Map, Value};
use waypost_core::limits::DEFINITION_BYTES_MAX;
use waypost_core::name::is_symlink;
use waypost_core::{ApplicationName, ClusterName, DefinitionKey, ServiceName};
use waypost_proto::v1 as pb;

use super::{DefinitionInput, Mistake, callees, document, kind_and_name, symlink};

/// The JSON form that D2 expects of a property.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Flag,
    FlagOrText,
    Integer,
    NumberOrText,
    /// A number with a fraction: D2 casts it to a Double, and `1` fails where `1.0` does not.
    Decimal,
    Number,
    TextList,
    /// Absent is a default, empty is a service that nobody can call.
    FilledTextList,
    ObjectList,
    Object,
    TextObject,
}

const CLUSTER_FORMS: &[(&str, Form)] = &[
    ("prioritizedSchemes", Form::TextList),
    ("properties", Form::TextObject),
    ("bannedUris", Form::TextList),
    ("partitionProperties", Form::Object),
    ("sslSessionValidationStrings", Form::TextList),
    ("darkClusters", Form::Object),
    ("delegated", Form::Flag),
    ("slowStartProperties", Form::Object),
    ("connectionOptions", Form::Object),
    ("outlierDetectionConfig", Form::Object),
    ("loadBalancingPolicies", Form::ObjectList),
    ("enableClusterSubsetting", Form::Flag),
    ("minClusterSubsetSize", Form::Integer),
    ("canaryConfigs", Form::Object),
    ("canaryDistributionStrategy", Form::Object),
    ("failoutProperties", Form::Object),
];

const SERVICE_FORMS: &[(&str, Form)] = &[
    ("loadBalancerStrategyList", Form::FilledTextList),
    ("loadBalancerStrategyProperties", Form::Object),
    ("transportClientProperties", Form::Object),
    ("degraderProperties", Form::Object),
    ("relativeStrategyProperties", Form::Object),
    ("prioritizedSchemes", Form::FilledTextList),
    ("bannedUris", Form::TextList),
    ("banned", Form::TextList),
    ("serviceMetadataProperties", Form::Object),
    ("backupRequests", Form::ObjectList),
    ("enableClusterSubsetting", Form::FlagOrText),
    ("minClusterSubsetSize", Form::NumberOrText),
    ("methodLevelProperties", Form::ObjectList),
    ("canaryConfigs", Form::Object),
    ("canaryDistributionStrategy", Form::Object),
];

const SLOW_START_FORMS: &[(&str, Form)] = &[
    ("disabled", Form::Flag),
    ("windowDurationSeconds", Form::Integer),
    ("aggression", Form::Decimal),
    ("minWeightPercent", Form::Decimal),
];

const CONNECTION_FORMS: &[(&str, Form)] = &[
    ("connectionJitterSeconds", Form::Number),
    ("maxDelayedConnectionRatio", Form::Number),
];

const RANGE_FORMS: &[(&str, Form)] = &[
    ("partitionKeyRegex", Form::Text),
    ("keyRangeStart", Form::Integer),
    ("partitionSize", Form::Integer),
    ("partitionCount", Form::Integer),
];

const HASH_FORMS: &[(&str, Form)] = &[
    ("partitionKeyRegex", Form::Text),
    ("partitionCount", Form::Integer),
    ("hashAlgorithm", Form::Text),
];

const HASH_ALGORITHMS: [&str; 3] = ["MODULO", "MD5", "XXHASH"];

/// Reads one message; what cannot be read is a mistake and no definition.
pub(super) fn read_message(
    index: usize,
    message: &pb::DefinitionInput,
    mistakes: &mut Vec<Mistake>,
) -> Option<(usize, DefinitionInput)> {
    let before = mistakes.len();
    let mut note = |(field, why): (String, String)| {
        let name = message.name.clone();
        mistakes.push(Mistake {
            index,
            name,
            field,
            why,
        });
    };
    let key = read_key(message.kind(), &message.name)
        .map_err(&mut note)
        .ok();
    let properties = read_properties(&message.properties_json)
        .map_err(&mut note)
        .ok();
    for (field, belongs) in misplaced(message) {
        note((field.to_owned(), belongs));
    }
    let mut read_cluster = || {
        let cluster = ClusterName::parse(&message.cluster);
        cluster.map_err(|e| note(("cluster".to_owned(), e.to_string())))
    };
    let input = match (message.kind(), key?) {
        (pb::definition_input::Kind::Symlink, DefinitionKey::Cluster(name)) => {
            let target = read_cluster().ok()?;
            DefinitionInput::Symlink { name, target }
        }
        (_, DefinitionKey::Cluster(name)) => DefinitionInput::Cluster {
            name,
            properties: properties?,
        },
        (_, DefinitionKey::Callees(application)) => {
            let services = callees::read_services(&message.services);
            let services = services.map_err(|wrong| wrong.into_iter().for_each(&mut note));
            DefinitionInput::Callees {
                application,
                services: services.ok()?,
            }
        }
        (_, DefinitionKey::Service(name)) => DefinitionInput::Service {
            name,
            cluster: read_cluster().ok()?,
            path: message.path.clone(),
            properties: properties?,
        },
    };
    (mistakes.len() == before).then_some((index, input))
}

/// The fields that are set and that definitions of this kind do not have, and what does.
fn misplaced(message: &pb::DefinitionInput) -> Vec<(&'static str, String)> {
    use pb::definition_input::Kind;
    let (what, own): (_, &[&str]) = match message.kind() {
        Kind::Unspecified => return Vec::new(),
        Kind::Cluster => ("a cluster", &["properties"]),
        Kind::Service => ("a service", &["cluster", "path", "properties"]),
        Kind::Symlink => ("a symlink", &["cluster"]),
        Kind::Callees => ("callees", &["services"]),
    };
    let set = [
        (
            "cluster",
            "a service or a symlink",
            message.cluster.is_empty(),
        ),
        ("path", "a service", message.path.is_empty()),
        (
            "properties",
            "a service or a cluster",
            message.properties_json.is_empty(),
        ),
        ("services", "callees", message.services.is_empty()),
    ];
    let misplaced = set
        .into_iter()
        .filter(|(field, _, is_empty)| !is_empty && !own.contains(field));
    misplaced
        .map(|(field, owner, _)| (field, format!("belongs to {owner}, not to {what}")))
        .collect()
}

/// Reads a kind and a name; the error is a field and what is wrong with it.
pub(super) fn read_key(
    kind: pb::definition_input::Kind,
    name: &str,
) -> Result<DefinitionKey, (String, String)> {
    let bad_name = |e: waypost_core::NameError| ("name".to_owned(), e.to_string());
    let other_kind = |why: &str| ("name".to_owned(), format!("is {name:?}; {why}"));
    match kind {
        pb::definition_input::Kind::Cluster if is_symlink(name) => {
            Err(other_kind("what begins with $ is a Symlink"))
        }
        pb::definition_input::Kind::Symlink if !is_symlink(name) => {
            Err(other_kind("a symlink begins with $"))
        }
        pb::definition_input::Kind::Cluster | pb::definition_input::Kind::Symlink => {
            let name = ClusterName::parse(name).map_err(bad_name)?;
            Ok(DefinitionKey::Cluster(name))
        }
        pb::definition_input::Kind::Service => ServiceName::parse(name)
            .map(DefinitionKey::Service)
            .map_err(bad_name),
        pb::definition_input::Kind::Callees => ApplicationName::parse(name)
            .map(DefinitionKey::Callees)
            .map_err(bad_name),
        pb::definition_input::Kind::Unspecified => Err((
            "kind".to_owned(),
            "is missing; expected Cluster, Service, Symlink or Callees".to_owned(),
        )),
    }
}

fn read_properties(text: &str) -> Result<Map<String, Value>, (String, String)> {
    let field = || "properties".to_owned();
    if text.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err((field(), format!("is {}; expected an object", kind(&other)))),
        Err(e) => Err((field(), format!("is not JSON: {e}"))),
    }
}

/// Adds every mistake of one definition.
pub(super) fn check(index: usize, input: &DefinitionInput, mistakes: &mut Vec<Mistake>) {
    let key = input.key();
    let (_, name) = kind_and_name(&key);
    let mut checker = Checker {
        index,
        name,
        mistakes,
    };
    match input {
        DefinitionInput::Callees {
            application,
            services,
        } => {
            checker.note_if("name", callees::mistake_of_name(application));
            for (place, why) in callees::mistakes_of_services(services) {
                checker.note(&place, why);
            }
        }
        DefinitionInput::Symlink { name, target } => {
            checker.note_if("name", symlink::mistake_of_name(name));
            checker.note_if("cluster", symlink::mistake_of_target(target));
        }
        DefinitionInput::Cluster { name, properties } => {
            checker.note_if("name", symlink::mistake_of_cluster(name));
            checker.check_own("clusterName", name.as_str(), properties);
            checker.check_forms("properties", properties, CLUSTER_FORMS);
            checker.check_parts(properties);
        }
        DefinitionInput::Service {
            name,
            cluster,
            path,
            properties,
        } => {
            checker.check_own("serviceName", name.as_str(), properties);
            checker.check_own("clusterName", cluster.as_str(), properties);
            checker.check_own("path", path, properties);
            if !path.is_empty() && !path.starts_with('/') {
                checker.note("path", format!("is {path:?}; expected it to start with /"));
            }
            checker.check_forms("properties", properties, SERVICE_FORMS);
        }
    }
    let size = document::to_document(input).len();
    if size > DEFINITION_BYTES_MAX {
        checker.note(
            "properties",
            format!("makes a document of {size} bytes; at most {DEFINITION_BYTES_MAX} are allowed"),
        );
    }
}

struct Checker<'a> {
    index: usize,
    name: &'a str,
    mistakes: &'a mut Vec<Mistake>,
}

impl Checker<'_> {
    fn note(&mut self, field: &str, why: String) {
        self.mistakes.push(Mistake {
            index: self.index,
            name: self.name.to_owned(),
            field: field.to_owned(),
            why,
        });
    }

    fn note_if(&mut self, field: &str, why: Option<&str>) {
        if let Some(why) = why {
            self.note(field, why.to_owned());
        }
    }

    /// A document of D2's own may repeat what stands beside `properties`, but not deny it.
    fn check_own(&mut self, key: &str, expected: &str, properties: &Map<String, Value>) {
        match properties.get(key) {
            None | Some(Value::Null) => {}
            Some(value) if value.as_str() == Some(expected) => {}
            Some(value) => self.note(
                &format!("properties.{key}"),
                format!("is {value}, but the definition says {expected:?}"),
            ),
        }
    }

    fn check_forms(
        &mut self,
        place: &str,
        properties: &Map<String, Value>,
        forms: &[(&str, Form)],
    ) {
        for (key, form) in forms {
            if let Some(value) = properties.get(*key).filter(|v| !v.is_null()) {
                self.check_form(&format!("{place}.{key}"), value, *form);
            }
        }
    }

    fn check_form(&mut self, place: &str, value: &Value, form: Form) {
        let fits = match form {
            Form::Text => value.is_string(),
            Form::Flag => value.is_boolean(),
            Form::FlagOrText => value.is_boolean() || value.is_string(),
            Form::Integer => is_integer(value),
            Form::Number => value.is_number(),
            Form::NumberOrText => value.is_number() || value.is_string(),
            Form::Decimal => value.is_number() && !is_integer(value),
            Form::TextList | Form::FilledTextList | Form::ObjectList => value.is_array(),
            Form::Object | Form::TextObject => value.is_object(),
        };
        if !fits {
            self.note(
                place,
                format!("is {}; expected {}", kind(value), form.expected()),
            );
            return;
        }
        match (form, value) {
            (Form::FilledTextList, Value::Array(items)) if items.is_empty() => self.note(
                place,
                "is empty, which leaves the service without any host; name at least one or leave it out for the default".to_owned(),
            ),
            (Form::TextList | Form::FilledTextList, Value::Array(items)) => {
                self.check_items(place, items, Form::Text);
            }
            (Form::ObjectList, Value::Array(items)) => self.check_items(place, items, Form::Object),
            (Form::TextObject, Value::Object(map)) => {
                for (key, item) in map {
                    self.check_form(&format!("{place}.{key}"), item, Form::Text);
                }
            }
            _ => {}
        }
    }

    fn check_items(&mut self, place: &str, items: &[Value], form: Form) {
        for (i, item) in items.iter().enumerate() {
            self.check_form(&format!("{place}[{i}]"), item, form);
        }
    }

    /// The parts of a cluster that are all or nothing.
    fn check_parts(&mut self, properties: &Map<String, Value>) {
        let parts = [
            ("slowStartProperties", SLOW_START_FORMS),
            ("connectionOptions", CONNECTION_FORMS),
        ];
        for (key, forms) in parts {
            if let Some(Value::Object(part)) = properties.get(key) {
                self.check_whole(&format!("properties.{key}"), part, forms);
            }
        }
        if let Some(Value::Object(partitioning)) = properties.get("partitionProperties") {
            self.check_partitioning(partitioning);
        }
    }

    fn check_whole(&mut self, place: &str, part: &Map<String, Value>, forms: &[(&str, Form)]) {
        for (key, form) in forms {
            match part.get(*key) {
                Some(value) => self.check_form(&format!("{place}.{key}"), value, *form),
                None => self.note(
                    &format!("{place}.{key}"),
                    format!("is missing; expected {}", form.expected()),
                ),
            }
        }
    }

    fn check_partitioning(&mut self, partitioning: &Map<String, Value>) {
        let place = "properties.partitionProperties";
        let kind_field = format!("{place}.partitionType");
        let kind = partitioning.get("partitionType").and_then(Value::as_str);
        match kind.map(str::to_ascii_uppercase).as_deref() {
            Some("RANGE") => self.check_whole(place, partitioning, RANGE_FORMS),
            Some("HASH") => {
                self.check_whole(place, partitioning, HASH_FORMS);
                let algorithm = partitioning.get("hashAlgorithm").and_then(Value::as_str);
                let known =
                    |name: &str| HASH_ALGORITHMS.contains(&name.to_ascii_uppercase().as_str());
                if let Some(name) = algorithm.filter(|name| !known(name)) {
                    self.note(
                        &format!("{place}.hashAlgorithm"),
                        format!("is {name:?}; expected MODULO, MD5 or XXHASH"),
                    );
                }
            }
            Some("CUSTOM") => self.check_forms(
                place,
                partitioning,
                &[
                    ("partitionCount", Form::Integer),
                    ("partitionAccessorList", Form::TextList),
                ],
            ),
            Some("NONE") => {}
            _ => self.note(
                &kind_field,
                "is missing or unknown; expected RANGE, HASH, CUSTOM or NONE".to_owned(),
            ),
        }
    }
}

impl Form {
    fn expected(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Flag => "true or false",
            Self::FlagOrText => "true, false or a string",
            Self::Integer => "a whole number (not a string)",
            Self::Number => "a number (not a string)",
            Self::NumberOrText => "a number or a string",
            Self::Decimal => {
                "a number with a fraction, for example 1.0 (D2 refuses a whole number here)"
            }
            Self::TextList | Self::FilledTextList => "a list of strings",
            Self::ObjectList => "a list of objects",
            Self::Object => "an object",
            Self::TextObject => "an object of strings",
        }
    }
}

/// Whether a number is spelled without fraction and exponent, which is how D2's JSON reader decides.
fn is_integer(value: &Value) -> bool {
    value
        .as_number()
        .is_some_and(|n| !n.as_str().contains(['.', 'e', 'E']))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) if is_integer(value) => "a whole number",
        Value::Number(_) => "a number with a fraction",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
