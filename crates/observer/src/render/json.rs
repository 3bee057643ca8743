//! JSON text to `google.protobuf.Struct`.

use prost_types::value::Kind;
use prost_types::{ListValue, NullValue, Struct, Value};

/// The members of a JSON object, or `None` where there are none.
///
/// Numbers become doubles, as the message has nothing else and rest.li reads nothing else
/// (`PropertyUtil`); one that no double can hold is kept as text.
pub(super) fn to_struct(text: &str) -> Option<Struct> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    (!object.is_empty()).then(|| convert_object(object))
}

fn convert_object(object: serde_json::Map<String, serde_json::Value>) -> Struct {
    Struct {
        fields: object.into_iter().map(|(k, v)| (k, convert(v))).collect(),
    }
}

fn convert(value: serde_json::Value) -> Value {
    let kind = match value {
        serde_json::Value::Null => Kind::NullValue(NullValue::NullValue.into()),
        serde_json::Value::Bool(flag) => Kind::BoolValue(flag),
        serde_json::Value::Number(number) => match number.as_f64().filter(|n| n.is_finite()) {
            Some(double) => Kind::NumberValue(double),
            None => Kind::StringValue(number.to_string()),
        },
        serde_json::Value::String(text) => Kind::StringValue(text),
        serde_json::Value::Array(values) => Kind::ListValue(ListValue {
            values: values.into_iter().map(convert).collect(),
        }),
        serde_json::Value::Object(object) => Kind::StructValue(convert_object(object)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_json_value_is_kept() {
        let text = r#"{"b":true,"s":"x","n":5,"f":0.1,"z":null,"l":[1,[]],"o":{"k":{}},"h":1e999}"#;
        let kinds: Vec<_> = to_struct(text)
            .unwrap()
            .fields
            .into_iter()
            .map(|(key, value)| (key, value.kind.unwrap()))
            .collect();
        let number = |n| Value {
            kind: Some(Kind::NumberValue(n)),
        };
        let empty_list = Value {
            kind: Some(Kind::ListValue(ListValue::default())),
        };
        let empty_object = Value {
            kind: Some(Kind::StructValue(Struct::default())),
        };
        let expected = [
            ("b", Kind::BoolValue(true)),
            ("f", Kind::NumberValue(0.1)),
            ("h", Kind::StringValue("1e+999".to_owned())),
            (
                "l",
                Kind::ListValue(ListValue {
                    values: vec![number(1.0), empty_list],
                }),
            ),
            ("n", Kind::NumberValue(5.0)),
            (
                "o",
                Kind::StructValue(Struct {
                    fields: [("k".to_owned(), empty_object)].into(),
                }),
            ),
            ("s", Kind::StringValue("x".to_owned())),
            ("z", Kind::NullValue(0)),
        ];
        assert_eq!(kinds, expected.map(|(k, v)| (k.to_owned(), v)));
    }

    #[test]
    fn an_empty_object_is_left_out() {
        assert_eq!(to_struct("{}"), None);
        assert_eq!(to_struct(""), None);
    }
}
