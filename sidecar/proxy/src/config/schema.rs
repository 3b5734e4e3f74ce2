//! The JSON Schema of the configuration file.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::Config;
use super::servers::{OF_THE_PROCESS, SERVER};

/// JSON Schema (2020-12) of the configuration file.
pub fn json_schema() -> String {
    let generator = SchemaSettings::default().for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    forbid_null(&mut schema);
    allow_several_servers(&mut schema);
    format!("{schema:#}\n")
}

/// `server` is a URL, or a list of tables that may have all settings but those of the whole process.
fn allow_several_servers(schema: &mut Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let url = properties.get(SERVER).cloned().unwrap_or_default();
    let mut own = properties.clone();
    own.retain(|name, _| name != SERVER && !OF_THE_PROCESS.contains(&name.as_str()));
    let name = json!({
        "description": "Name in the log, the status and the metrics.",
        "type": "string",
        "pattern": "^[A-Za-z0-9._-]{1,63}$"
    });
    own.insert("name".to_owned(), name);
    own.insert("url".to_owned(), url.clone());
    schema["$defs"]["ServerSection"] = json!({
        "description": "One of several servers. The top level of the file has the defaults.",
        "type": "object",
        "properties": own,
        "additionalProperties": false,
        "required": ["name", "url", "listen"]
    });
    let several = json!({ "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/ServerSection" } });
    schema["properties"][SERVER] = json!({ "anyOf": [url, several] });
}

/// TOML has no null, but schemars permits it for every `Option`.
fn forbid_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(forbid_null),
        Value::Object(rules) => {
            // Defaults that are null are removed, too.
            rules.retain(|_, rule| !rule.is_null());
            rules.values_mut().for_each(forbid_null);
            if let Some(Value::Array(types)) = rules.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    rules.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = rules.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    rules.remove("anyOf");
                    rules.extend(only);
                }
            }
        }
        _ => {}
    }
}
