//! The choice among the hosts of an SQL URL: in its order, as by libpq. Unlike libpq, it goes on to the next host also if one
//! refuses the login for another reason than the password.

use ciphertoll_model::{ServerUrl, TargetSession};
use ciphertoll_net::blocking::Client;

use super::login::{Passwords, log_in};
use crate::error::Error;
use crate::servers::control;

/// The host that a run uses, and why.
#[derive(Clone, Debug)]
pub struct ChosenHost {
    pub url: ServerUrl,
    /// Why the hosts before it are not used, one line each.
    pub passed_over: Vec<String>,
}

/// The first host of `url`, in its order, that lets clients in and whose session is what the URL wants. `None` if it names a
/// single host and wants nothing. A refused password and a certificate that does not verify end the search.
pub fn choose_host(name: &str, url: &ServerUrl, passwords: &Passwords) -> Result<Option<ChosenHost>, Error> {
    let wanted = url.target_session;
    if url.hosts.is_empty() && wanted == TargetSession::Any {
        return Ok(None);
    }
    let candidates = if url.hosts.is_empty() { std::slice::from_ref(url) } else { &url.hosts };
    let passes = match wanted {
        TargetSession::PreferStandby => &[TargetSession::Standby, TargetSession::Any][..],
        _ => &[wanted],
    };
    let mut passed_over = Vec::new();
    for wanted in passes {
        passed_over.clear();
        for candidate in candidates {
            match log_in(name, candidate, passwords) {
                Ok(client) => match unwanted(name, client, *wanted)? {
                    None => return Ok(Some(ChosenHost { url: candidate.clone(), passed_over })),
                    Some(found) => passed_over.push(format!("{}: {found}", candidate.address())),
                },
                Err(Error::Unreachable { reason, .. }) => {
                    passed_over.push(format!("{}: {reason}", candidate.address()));
                }
                Err(error) => return Err(error),
            }
        }
    }
    let reason = format!("no host is {}: {}", described(wanted), passed_over.join("; "));
    Err(Error::Unreachable { name: name.to_owned(), reason })
}

fn described(wanted: TargetSession) -> &'static str {
    match wanted {
        TargetSession::Any | TargetSession::PreferStandby => "reachable",
        TargetSession::ReadWrite => "writable (target_session_attrs=read-write)",
        TargetSession::ReadOnly => "read-only (target_session_attrs=read-only)",
        TargetSession::Primary => "a primary (target_session_attrs=primary)",
        TargetSession::Standby => "a standby (target_session_attrs=standby)",
    }
}

/// What the session is instead of what is wanted; `None` if it is that.
fn unwanted(name: &str, mut client: Client, wanted: TargetSession) -> Result<Option<&'static str>, Error> {
    let (sql, expected, otherwise) = match wanted {
        TargetSession::Any | TargetSession::PreferStandby => {
            control::close(client)?;
            return Ok(None);
        }
        TargetSession::ReadWrite => ("SHOW transaction_read_only", "off", "it is read-only"),
        TargetSession::ReadOnly => ("SHOW transaction_read_only", "on", "it is writable"),
        TargetSession::Primary => ("SELECT pg_is_in_recovery()", "f", "it is a standby"),
        TargetSession::Standby => ("SELECT pg_is_in_recovery()", "t", "it is a primary"),
    };
    let rows = control::query(&mut client, "ask for the server's role", sql)?;
    control::close(client)?;
    match rows.first().and_then(|row| row.first()) {
        Some(value) if value == expected => Ok(None),
        Some(_) => Ok(Some(otherwise)),
        None => {
            let reason = format!("it does not answer to {sql}");
            Err(Error::Unreachable { name: name.to_owned(), reason })
        }
    }
}
