//! Commands of document databases, as JSON text.

use std::fmt::Write;

use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::servers::control;

/// The database of YCSB's records.
pub(crate) const DATABASE: &str = "ycsb";
/// The account of control connections, over the Unix socket.
pub(crate) const CONTROL_USER: &str = "ciphertoll_control";

/// A command that every server answers.
pub(crate) const PING: &str = r#"{"ping": 1}"#;

/// Creates a user. The password is sent over the private Unix socket only, and servers do not log it.
pub(crate) fn create_user(
    client: &mut Client,
    user: &str,
    password: &Secret,
    roles: &Value,
    mechanisms: &[&str],
) -> Result<(), Error> {
    let password = String::from_utf8_lossy(password.expose());
    let rest = [("pwd", json!(password)), ("roles", roles.clone()), ("mechanisms", json!(mechanisms))];
    control::execute(client, "create an account", &command("createUser", &json!(user), &rest))
}

/// The text of a command. Its first key must be the command's name.
pub(crate) fn command(name: &str, what: &Value, rest: &[(&str, Value)]) -> String {
    let mut text = format!("{{\"{name}\":{what}");
    for (name, value) in rest {
        // Writing to a string cannot fail.
        let _ = write!(text, ",\"{name}\":{value}");
    }
    text.push('}');
    text
}

/// Runs a command whose answer is a single document; empty if it is not.
pub(crate) fn ask(
    client: &mut Client,
    doing: &'static str,
    command: &str,
) -> Result<Map<String, Value>, Error> {
    let rows = control::query(client, doing, command)?;
    let answer = rows.into_iter().flatten().next().unwrap_or_default();
    match serde_json::from_str(&answer) {
        Ok(Value::Object(document)) => Ok(document),
        _ => Ok(Map::new()),
    }
}

/// A number in any of the forms that servers use.
pub(crate) fn number(value: &Value) -> Option<u64> {
    let long = || value.get("$numberLong")?.as_str()?.parse().ok();
    // Counts are far below the precision of a float.
    value.as_u64().or_else(|| value.as_f64().map(|float| float as u64)).or_else(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_forms_are_read() {
        let of = |text: &str| number(&serde_json::from_str(text).unwrap());
        assert_eq!([of("3"), of("3.0"), of(r#"{"$numberLong": "3"}"#)], [Some(3); 3]);
        assert_eq!([of("null"), of(r#""3""#)], [None; 2]);
    }
}
