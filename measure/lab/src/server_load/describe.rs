//! The load of a server as a sentence.

use ciphertoll_model::TlsVersion;

use super::{LoadAbsence, LoadValue, ServerLoad};

impl ServerLoad {
    /// Transactions per new connection: a lower bound for statements, where these are not counted.
    pub fn transactions_per_connection(&self) -> Option<f64> {
        let connects = self.connects_per_s.filter(|connects| *connects > 0.0)?;
        Some(self.transactions_per_s? / connects)
    }
}

/// Such as "your server takes 212 connects/s, 3.1 statements each; 100 % of connections use TLS 1.2".
pub fn describe(load: &ServerLoad) -> String {
    let connects = match load.connects_per_s {
        Some(rate) => format!("your server takes {} connects/s{}", number(rate), statements(load)),
        None => format!(
            "the connects of your server are unknown ({}); it runs {}",
            because(load, LoadValue::ConnectsPerS),
            rate_of_statements(load)
        ),
    };
    let parts = [Some(connects), encryption(load), resumption(load), failures(load)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn statements(load: &ServerLoad) -> String {
    match (load.statements_per_connection, load.transactions_per_connection()) {
        (Some(each), _) => format!(", {} statements each", number(each)),
        (None, Some(each)) => format!(
            ", at least {} statements each (it counts transactions, and statements are unknown: {})",
            number(each),
            because(load, LoadValue::StatementsPerS)
        ),
        (None, None) => format!(", and runs {}", rate_of_statements(load)),
    }
}

fn rate_of_statements(load: &ServerLoad) -> String {
    match (load.statements_per_s, load.transactions_per_s) {
        (Some(rate), _) => format!("{} statements/s", number(rate)),
        (None, Some(rate)) => format!("at least {} statements/s (it counts transactions)", number(rate)),
        (None, None) => {
            format!("an unknown number of statements ({})", because(load, LoadValue::StatementsPerS))
        }
    }
}

fn encryption(load: &ServerLoad) -> Option<String> {
    if load.versions.is_empty() {
        return match load.encrypted_connect_share {
            Some(0.0) => Some("no connection uses TLS".to_owned()),
            Some(share) => Some(format!("{} of connections use TLS", percent(share))),
            None if load.absent.get(&LoadValue::EncryptedConnectShare) == Some(&LoadAbsence::Idle) => None,
            None => Some(format!(
                "whether they use TLS is unknown ({})",
                because(load, LoadValue::EncryptedConnectShare)
            )),
        };
    }
    let version = |version: TlsVersion| version.label().replace("tls", "TLS ");
    let shares: Vec<String> = load
        .versions
        .iter()
        .map(|of| format!("{} of connections use {}", percent(of.share), version(of.version)))
        .collect();
    Some(shares.join(", "))
}

fn resumption(load: &ServerLoad) -> Option<String> {
    let share = load.resumed_share.filter(|share| *share > 0.0)?;
    Some(format!("{} of TLS handshakes are resumed", percent(share)))
}

fn failures(load: &ServerLoad) -> Option<String> {
    let rate = load.aborted_connects_per_s.filter(|rate| *rate > 0.0)?;
    Some(format!("{} connects/s fail", number(rate)))
}

fn because(load: &ServerLoad, value: LoadValue) -> &'static str {
    match load.absent.get(&value) {
        Some(LoadAbsence::MissingRight) => "the account lacks the right to read them",
        Some(LoadAbsence::Reset) => "a counter was reset",
        Some(LoadAbsence::Idle) => "nothing happened",
        Some(LoadAbsence::NotCounted) if value == LoadValue::StatementsPerS => {
            "pg_stat_statements is not in use"
        }
        Some(LoadAbsence::NotCounted) | None => "it does not count them",
    }
}

/// At most three significant digits.
fn number(value: f64) -> String {
    let decimals = match value {
        ..0.005 => 0,
        ..0.995 => 2,
        ..99.5 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}").trim_end_matches(".0").to_owned()
}

/// Shares that are not 0 or 1 are not rounded to these.
fn percent(share: f64) -> String {
    match share * 100.0 {
        value if value > 0.0 && value < 1.0 => "less than 1 %".to_owned(),
        value if value > 99.0 && value < 100.0 => "more than 99 %".to_owned(),
        value => format!("{value:.0} %"),
    }
}
