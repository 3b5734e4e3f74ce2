//! What `MongoDB` and `FerretDB` share: commands in JSON, accounts, the collection of YCSB's records.

mod batches;
mod inserted;
mod loading;
mod record;

use std::fmt::Write;

use ciphertoll_model::{Auth, Engine, ycsb};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use serde_json::{Map, Value, json};

use crate::control::{self, Control};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::server::Arrivals;

pub(crate) use self::inserted::remove_inserted;
pub use self::loading::Loaded;
pub(crate) use self::loading::{BATCH_DOCUMENTS, Load, load, loaders};

/// The database that clients use.
pub(crate) const DATABASE: &str = "ycsb";
/// The database that knows the accounts.
pub(crate) const ADMIN: &str = "admin";
/// The account of control connections, by the unix socket.
pub(crate) const CONTROL_USER: &str = "ciphertoll_control";
/// The account for [`Auth::default_of`].
pub(crate) const USER: &str = "ciphertoll";

/// What every server answers, and tells nothing by it.
pub(crate) const PING: &str = r#"{"ping": 1}"#;

/// Makes the account for these credentials, with these roles.
pub(crate) fn make_account(
    control: &Control,
    credentials: Credentials,
    password: &Secret,
    roles: &Value,
) -> Result<(), Error> {
    let mechanism = if credentials.auth == Auth::ScramSha1 { "SCRAM-SHA-1" } else { "SCRAM-SHA-256" };
    let user = account_name(credentials);
    create_user(&mut control.connect()?, &user, password, roles, &[mechanism])
}

/// Makes a user; the password goes by the unix socket only, where nobody listens, and servers keep it out of their logs.
pub(crate) fn create_user(
    client: &mut Client,
    user: &str,
    password: &Secret,
    roles: &Value,
    mechanisms: &[&str],
) -> Result<(), Error> {
    let password = String::from_utf8_lossy(password.expose());
    let rest = [("pwd", json!(password)), ("roles", roles.clone()), ("mechanisms", json!(mechanisms))];
    control::execute(client, "make an account", &command("createUser", &json!(user), &rest))
}

/// The account for these credentials.
pub(crate) fn account_name(credentials: Credentials) -> String {
    let name = match credentials.auth {
        // MongoDB's, too.
        auth if auth == Auth::default_of(Engine::FerretDb) => USER.to_owned(),
        Auth::Scram { iterations, .. } => format!("{USER}_{}", iterations.number()),
        auth => format!("{USER}_{auth}").replace('-', "_"),
    };
    format!("{name}{}", credentials.account_suffix())
}

/// A command as text, whose first word names it.
pub(crate) fn command(name: &str, what: &Value, rest: &[(&str, Value)]) -> String {
    let mut text = format!("{{\"{name}\":{what}");
    for (name, value) in rest {
        // Writing to a string cannot fail.
        let _ = write!(text, ",\"{name}\":{value}");
    }
    text.push('}');
    text
}

/// The one document of an answer that is no result of documents.
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

/// Reads every record, so that the server has them at hand: nobody's field is empty, so that each is looked at, and none
/// is sent.
pub(crate) fn prewarm(control: &Control) -> Result<(), Error> {
    let rest = [("filter", json!({ "field0": "" }))];
    let command = command("find", &ycsb::COLLECTION.into(), &rest);
    let mut client = control.in_database(DATABASE).connect()?;
    control::execute(&mut client, "read all documents once", &command)
}

/// What came to the server so far, as far as it counts it; control connections are not apart.
pub(crate) fn arrivals(control: &Control) -> Result<Arrivals, Error> {
    let status = status(control)?;
    let created = status.get("connections").and_then(|connections| connections.get("totalCreated"));
    let commands = status.get("metrics").and_then(|metrics| metrics.get("commands")?.as_object());
    let total = |commands: &Map<String, Value>| {
        commands.values().filter_map(|command| command.get("total")).filter_map(number).sum()
    };
    Ok(Arrivals {
        connections: created.and_then(number),
        requests: commands.map(total),
        ..Arrivals::default()
    })
}

/// Pages that were read from disk so far; none where the server does not tell.
pub(crate) fn buffer_misses(control: &Control) -> Result<Option<u64>, Error> {
    let status = status(control)?;
    let cache = status.get("wiredTiger").and_then(|engine| engine.get("cache"));
    Ok(cache.and_then(|cache| cache.get("pages read into cache")).and_then(number))
}

fn status(control: &Control) -> Result<Map<String, Value>, Error> {
    ask(&mut control.connect()?, "read the server's counters", &command("serverStatus", &json!(1), &[]))
}

/// Servers choose between kinds of numbers.
pub(crate) fn number(value: &Value) -> Option<u64> {
    let long = || value.get("$numberLong")?.as_str()?.parse().ok();
    // Counts are far below what a float can tell apart.
    value.as_u64().or_else(|| value.as_f64().map(|float| float as u64)).or_else(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_named_by_what_they_show() {
        let of = |auth: &str| account_name(auth.parse::<Auth>().unwrap().into());
        assert_eq!(of("scram-15000"), USER);
        assert_eq!(
            (of("scram-4096"), of("scram-sha1")),
            ("ciphertoll_4096".into(), "ciphertoll_scram_sha1".into())
        );
    }

    #[test]
    fn numbers_are_read_of_whatever_kind() {
        let of = |text: &str| number(&serde_json::from_str(text).unwrap());
        assert_eq!([of("3"), of("3.0"), of(r#"{"$numberLong": "3"}"#)], [Some(3); 3]);
        assert_eq!([of("null"), of(r#""3""#)], [None; 2]);
    }
}
