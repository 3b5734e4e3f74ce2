//! What sessions do not have, because the documentation of the proxy lists the difference.

use super::message::Frontend;
use super::{Login, PostgresSession};
use crate::session::Step;

/// Words behind which a setting of the login is another one, see `Documented::LoginSettings`.
const RESETS: [&str; 4] = ["RESET", "DISCARD ALL", "DEFAULT", "LOCAL"];
/// What a server process keeps, and a transaction that is prepared must not have: see `Documented::Process`.
const KEPT: [&str; 2] = ["LISTEN", "TEMP"];

/// Words behind which a server may read a statement anew, with the settings that there are then, and such a statement.
const READ_ANEW: [&str; 3] = ["SEARCH_PATH", "SCHEMA", "TEMP"];
const WITH_CONSTANTS: &str = "TIMESTAMPTZ '2020-01-01 00:00' AT";

/// A search path with another schema in front, and a table there: see `Documented::Shadowed`.
const SHADOWS: &str = "search_path=other";
const SHADOWING: &str = "CREATE TABLE other.u";

pub(crate) fn avoid_documented(session: &mut PostgresSession) {
    let has = |session: &PostgresSession, words: &[&str]| {
        session
            .steps
            .iter()
            .flat_map(texts_of)
            .any(|sql| words.iter().any(|word| sql.to_uppercase().contains(word)))
    };
    if has(session, &RESETS) {
        session.logins.iter_mut().for_each(Login::clear);
    }
    if has(session, &["'NOW'"]) {
        // A server reads statements anew when temporary tables come into its search path: in a connection that has had some,
        // they are there already.
        session.logins.iter_mut().for_each(|login| login.retain(|(_, value)| !value.contains("pg_temp")));
        rewrite(session, |name, sql| {
            let is_unnamed_now = name == Some("") && sql.to_lowercase().contains("'now'");
            let is_temporary = sql.to_uppercase().contains("TEMP");
            if is_temporary || is_unnamed_now { "SELECT 1".to_owned() } else { sql }
        });
    }
    if has_message(session, |message| matches!(message, Frontend::DescribeStatement(_))) {
        // Prepared again in front of it, the statement takes the transaction's snapshot.
        rewrite(session, |_, sql| {
            let is_characteristic = sql.to_uppercase().starts_with("SET TRANSACTION");
            if is_characteristic { "SELECT 1".to_owned() } else { sql }
        });
    }
    if session.steps.iter().any(|step| matches!(step, Step::Admin(_))) {
        // The `Parse` of an `EXECUTE` fails if its statement cannot be prepared again, and not its `Execute`.
        rewrite(session, |name, sql| {
            let is_execute = name.is_some() && sql.to_uppercase().contains("EXECUTE");
            if is_execute { "SELECT 1".to_owned() } else { sql }
        });
    }
    if has(session, &["SEARCH_PATH"])
        || session.logins.iter().flatten().any(|(_, value)| value.contains(SHADOWS))
    {
        session.steps.retain(|step| !matches!(step, Step::Admin(sql) if sql.contains(SHADOWING)));
    }
    if has(session, &[WITH_CONSTANTS]) {
        session.logins.iter_mut().for_each(|login| {
            login.retain(|(name, value)| !format!("{name}{value}").contains("search_path"));
        });
        rewrite(session, |_, sql| {
            let is_read_anew = READ_ANEW.iter().any(|word| sql.to_uppercase().contains(word));
            if is_read_anew { "SELECT 1".to_owned() } else { sql }
        });
    }
    if has_message(session, |message| matches!(message, Frontend::Terminate)) {
        // A client that has just left has its locks until its connection is reset.
        rewrite(session, |_, sql| sql.replace("pg_try_advisory_lock", "pg_advisory_lock"));
    }
    if uses_unnamed_again(session) {
        describe_unnamed(session);
    }
    if has(session, &KEPT) {
        rewrite(session, |_, sql| sql.replace("PREPARE TRANSACTION 'x'", "COMMIT"));
    }
}

fn has_message(session: &PostgresSession, is_such: impl Fn(&Frontend) -> bool) -> bool {
    session
        .steps
        .iter()
        .any(|step| matches!(step, Step::Send { messages, .. } if messages.iter().any(&is_such)))
}

/// Whether a client uses its statement without a name in a later batch than that in which it was prepared.
fn uses_unnamed_again(session: &PostgresSession) -> bool {
    let mut prepared_now = vec![false; session.logins.len()];
    session.steps.iter().any(|step| {
        let Step::Send { client, messages, .. } = step else { return false };
        let is_prepared = &mut prepared_now[*client];
        messages.iter().any(|message| {
            match message {
                Frontend::Parse { name, .. } if name.is_empty() => *is_prepared = true,
                Frontend::Bind(bind) if bind.statement.is_empty() => return !*is_prepared,
                Frontend::DescribeStatement(name) if name.is_empty() => return !*is_prepared,
                message if message.ends_in_ready() => *is_prepared = false,
                _ => {}
            }
            false
        })
    })
}

/// The server describes each statement without a name: see `Documented::Undescribed`.
fn describe_unnamed(session: &mut PostgresSession) {
    for step in &mut session.steps {
        let Step::Send { messages, .. } = step else { continue };
        *messages = std::mem::take(messages)
            .into_iter()
            .flat_map(|message| {
                let is_unnamed = matches!(&message, Frontend::Parse { name, .. } if name.is_empty());
                let describe = is_unnamed.then(|| Frontend::DescribeStatement(String::new()));
                std::iter::once(message).chain(describe)
            })
            .collect();
    }
}

/// Changes each text; the first argument is the name of its statement.
fn rewrite(session: &mut PostgresSession, change: impl Fn(Option<&str>, String) -> String) {
    for step in &mut session.steps {
        let Step::Send { messages, .. } = step else { continue };
        for message in messages {
            match message {
                Frontend::Query(sql) => *sql = change(None, std::mem::take(sql)),
                Frontend::Parse { name, sql, .. } => *sql = change(Some(name), std::mem::take(sql)),
                _ => {}
            }
        }
    }
}

fn texts_of(step: &Step<Frontend>) -> Vec<&str> {
    let Step::Send { messages, .. } = step else { return Vec::new() };
    let texts = messages.iter().filter_map(|message| match message {
        Frontend::Query(sql) | Frontend::Parse { sql, .. } => Some(sql.as_str()),
        _ => None,
    });
    texts.collect()
}
