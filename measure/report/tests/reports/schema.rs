//! The schema is committed, and every document keeps to it.

use ciphertoll_model::Ending;
use ciphertoll_report::{json, json_schema};
use serde_json::{Map, Value};

use crate::fixture::{contexts, keys, one_block, quick, smoke, troubled};

/// A committed file; `UPDATE_GOLDEN=1` writes it anew.
pub(crate) fn golden(name: &str, found: &str) -> String {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    std::fs::read_to_string(&path).unwrap()
}

#[test]
fn the_schema_is_the_golden_one() {
    // As values: which order serde_json's maps have depends on what else is built with it.
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let golden: Value = serde_json::from_str(&golden("v1.schema.json", &json_schema())).unwrap();
    assert_eq!(
        schema, golden,
        "the schema has changed: a new schema_version, or UPDATE_GOLDEN=1 and a good reason"
    );
    assert!(!json_schema().contains("null"), "what does not apply is absent");
}

#[test]
fn every_document_keeps_to_the_schema() {
    let mut complete = quick();
    complete.end(Ending::Complete);
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    for run in [complete, quick(), smoke(), contexts(), troubled(), one_block(), keys()] {
        let document: Value = serde_json::from_str(&json(&run.report()).unwrap()).unwrap();
        assert_eq!(Check { root: &schema }.fault(&schema, &document, "$"), None);
    }
}

#[test]
fn a_document_that_does_not_keep_to_the_schema_is_found_out() {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let document: Value = serde_json::from_str(&json(&troubled().report()).unwrap()).unwrap();
    let fault = |document: &Value| Check { root: &schema }.fault(&schema, document, "$");
    for (pointer, wrong) in
        [("/seed", Value::Null), ("/cells/0/pace", 8.into()), ("/cells/0/clients", "8".into())]
    {
        let mut broken = document.clone();
        *broken.pointer_mut(pointer).unwrap() = wrong;
        assert!(fault(&broken).is_some(), "{pointer}");
    }
    let mut broken = document.clone();
    broken["cells"][0].as_object_mut().unwrap().remove("blocks_used");
    assert!(fault(&broken).is_some(), "a missing field");
}

/// The first thing in a document that does not keep to the schema.
pub(crate) fn fault(schema: &Value, document: &Value) -> Option<String> {
    Check { root: schema }.fault(schema, document, "$")
}

/// As much of JSON Schema as ours uses; a keyword that it does not know is an error, not a pass.
struct Check<'a> {
    root: &'a Value,
}

impl Check<'_> {
    /// The first thing that is wrong, and where.
    fn fault(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let rules = match schema {
            Value::Bool(allowed) => return (!allowed).then(|| format!("{at} is not allowed")),
            schema => schema.as_object().unwrap(),
        };
        rules.iter().find_map(|(keyword, rule)| self.broken(keyword, rule, rules, value, at))
    }

    fn broken(
        &self,
        keyword: &str,
        rule: &Value,
        rules: &Map<String, Value>,
        value: &Value,
        at: &str,
    ) -> Option<String> {
        let wrong = |broken: bool| broken.then(|| format!("{at}: {keyword} {rule}, found {value}"));
        match keyword {
            "$schema" | "$defs" | "title" | "description" | "format" | "properties" => {
                self.properties(keyword, rule, value, at)
            }
            "$ref" => {
                let target = self.root.pointer(rule.as_str().unwrap().trim_start_matches('#')).unwrap();
                self.fault(target, value, at)
            }
            "type" => match rule {
                Value::Array(types) => {
                    wrong(!types.iter().any(|one| is_of_type(value, one.as_str().unwrap())))
                }
                one => wrong(!is_of_type(value, one.as_str().unwrap())),
            },
            "const" => wrong(rule != value),
            "enum" => wrong(!rule.as_array().unwrap().contains(value)),
            "minimum" => wrong(value.as_f64() < rule.as_f64()),
            "maximum" => wrong(value.as_f64() > rule.as_f64()),
            "required" => {
                let missing = |name: &&Value| value.get(name.as_str().unwrap()).is_none();
                rule.as_array().unwrap().iter().find(missing).map(|name| format!("{at}: {name} is missing"))
            }
            "items" => value.as_array()?.iter().find_map(|item| self.fault(rule, item, &format!("{at}[]"))),
            "additionalProperties" => {
                let known =
                    |name: &String| rules.get("properties").is_some_and(|known| known.get(name).is_some());
                let mut others = value.as_object()?.iter().filter(|(name, _)| !known(name));
                others.find_map(|(name, field)| self.fault(rule, field, &format!("{at}.{name}")))
            }
            "propertyNames" => {
                value.as_object()?.keys().find_map(|name| self.fault(rule, &Value::from(name.as_str()), at))
            }
            "anyOf" => wrong(self.matches(rule, value) == 0),
            "oneOf" => wrong(self.matches(rule, value) != 1),
            unknown => panic!("the schema uses {unknown}, which this check does not know"),
        }
    }

    fn properties(&self, keyword: &str, rule: &Value, value: &Value, at: &str) -> Option<String> {
        if keyword != "properties" {
            return None;
        }
        let mut present =
            rule.as_object().unwrap().iter().filter_map(|(name, rule)| Some((name, rule, value.get(name)?)));
        present.find_map(|(name, rule, field)| self.fault(rule, field, &format!("{at}.{name}")))
    }

    fn matches(&self, rules: &Value, value: &Value) -> usize {
        rules.as_array().unwrap().iter().filter(|rule| self.fault(rule, value, "").is_none()).count()
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("no JSON type: {other}"),
    }
}
