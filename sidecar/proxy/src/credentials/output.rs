//! What a command has printed: the password, or a JSON object with the password, its expiry and perhaps a user name.

use std::time::Duration;

use ciphertoll_wire::Secret;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// The names of fields, in the spelling of the commands that print them; docs/sidecar/credentials.md lists them.
const PASSWORDS: [&str; 5] = ["password", "token", "accessToken", "access_token", "secret"];
const USERS: [&str; 1] = ["username"];
const MOMENTS: [&str; 7] = [
    "expires",
    "expiration",
    "expires_on",
    "expiresOn",
    "token_expiry",
    "expirationTimestamp",
    "tokenExpirationTimestamp",
];
const SPANS: [&str; 3] = ["lease_duration", "expires_in", "ttl"];
/// Objects that have these fields in place of the outermost one: of Vault, gcloud, and Kubernetes.
const CONTAINERS: [&str; 3] = ["data", "credential", "status"];
/// Vault's key-value store has `data` in `data`.
const MAX_DEPTH: u32 = 2;
const MAX_USER_BYTES: usize = 255;
const LONGEST: Duration = Duration::from_hours(24 * 366);

pub(super) struct Printed {
    pub(super) password: Secret,
    /// The user name of the server, if it is not the configured one.
    pub(super) user: Option<String>,
    /// The first of several.
    pub(super) expiry: Option<Expiry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    At(Timestamp),
    /// After the start of the command.
    After(Duration),
}

/// No error contains anything that was printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    #[error("the command printed nothing")]
    Empty,
    #[error("the command printed a password with a NUL byte")]
    Nul,
    #[error("the output begins with {{ and is not a JSON object: error in line {line}, column {column}")]
    NotJson { line: usize, column: usize },
    #[error("the JSON output has none of the fields {}", PASSWORDS.join(", "))]
    NoPassword,
    #[error("the JSON output has several of the fields {}", PASSWORDS.join(", "))]
    SeveralPasswords,
    #[error("the field {0} of the JSON output is not text, or empty")]
    NotText(&'static str),
    #[error(
        "the field {0} of the JSON output is not a time: write RFC 3339 with a time zone, or seconds since 1970"
    )]
    NotTime(&'static str),
    #[error("the field {0} of the JSON output is not a number of seconds")]
    NotSeconds(&'static str),
}

pub(super) fn parse(output: &Secret) -> Result<Printed, OutputError> {
    let bytes = output.expose();
    if bytes.trim_ascii_start().starts_with(b"{") {
        return of_json(bytes);
    }
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    Ok(Printed { password: checked(text.to_vec())?, user: None, expiry: None })
}

fn checked(bytes: Vec<u8>) -> Result<Secret, OutputError> {
    let password = Secret::new(bytes);
    match password.expose() {
        [] => Err(OutputError::Empty),
        bytes if bytes.contains(&0) => Err(OutputError::Nul),
        _ => Ok(password),
    }
}

fn of_json(bytes: &[u8]) -> Result<Printed, OutputError> {
    let parsed: serde_json::Result<Map<String, Value>> = serde_json::from_slice(bytes);
    // The message of the error could contain a part of the text.
    let object =
        parsed.map_err(|error| OutputError::NotJson { line: error.line(), column: error.column() })?;
    let mut fields = Vec::new();
    collect(object, 0, &mut fields);
    let (mut password, mut user, mut expiries, mut wrong) = (None, None, Vec::new(), None);
    for (name, value) in fields {
        if PASSWORDS.contains(&name) {
            if password.replace(Secret::new(text(name, value)?.into_bytes())).is_some() {
                return Err(OutputError::SeveralPasswords);
            }
        } else if USERS.contains(&name) {
            user = Some(text(name, value)?);
        } else if MOMENTS.contains(&name) {
            // Azure prints a local time without a zone, and then the same time as a number.
            match moment(&value) {
                Some(at) => expiries.push(Expiry::At(at)),
                None => wrong = Some(OutputError::NotTime(name)),
            }
        } else {
            match seconds(&value) {
                // Vault's stores without leases.
                Some(Duration::ZERO) => {}
                Some(span) => expiries.push(Expiry::After(span)),
                None => return Err(OutputError::NotSeconds(name)),
            }
        }
    }
    if let (true, Some(wrong)) = (expiries.is_empty(), wrong) {
        return Err(wrong);
    }
    let password = checked(password.ok_or(OutputError::NoPassword)?.expose().to_vec())?;
    if user.as_ref().is_some_and(|user| user.len() > MAX_USER_BYTES || user.contains('\0')) {
        return Err(OutputError::NotText("username"));
    }
    let now = Timestamp::now();
    let left = |expiry: &Expiry| match expiry {
        Expiry::At(at) => at.duration_since(now).as_secs_f64(),
        Expiry::After(span) => span.as_secs_f64(),
    };
    let expiry = expiries.into_iter().min_by(|one, other| left(one).total_cmp(&left(other)));
    Ok(Printed { password, user, expiry })
}

/// The known fields, also those of the objects that some commands print around them.
fn collect(object: Map<String, Value>, depth: u32, fields: &mut Vec<(&'static str, Value)>) {
    let known = PASSWORDS.into_iter().chain(USERS).chain(MOMENTS).chain(SPANS);
    let known: Vec<&'static str> = known.collect();
    for (key, value) in object {
        match value {
            Value::Null => {}
            Value::Object(inner) => {
                if depth < MAX_DEPTH && CONTAINERS.contains(&key.as_str()) {
                    collect(inner, depth + 1, fields);
                }
            }
            value => fields.extend(known.iter().find(|name| **name == key).map(|name| (*name, value))),
        }
    }
}

fn text(name: &'static str, value: Value) -> Result<String, OutputError> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(text),
        _ => Err(OutputError::NotText(name)),
    }
}

/// RFC 3339, or seconds since 1970 as a number or text.
fn moment(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(number) => Timestamp::from_second(number.as_f64()?.floor() as i64).ok(),
        Value::String(text) => match text.parse::<i64>() {
            Ok(seconds) => Timestamp::from_second(seconds).ok(),
            Err(_) => text.parse().ok(),
        },
        _ => None,
    }
}

fn seconds(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    let span = Duration::try_from_secs_f64(seconds).ok()?;
    Some(span.min(LONGEST))
}

#[cfg(test)]
mod tests;
