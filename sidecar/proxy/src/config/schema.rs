//! The JSON Schema of the configuration file.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::Config;

/// JSON Schema (2020-12) of the configuration file.
pub fn json_schema() -> String {
    let generator = SchemaSettings::default().for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    forbid_null(&mut schema);
    format!("{schema:#}\n")
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
