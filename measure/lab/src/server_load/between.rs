//! The load between two readings. Pure.

use std::collections::BTreeMap;

use super::reading::{CountsByPart, LoadReading, OpenConnections, OpenTls};
use super::{LoadAbsence, LoadValue, ServerLoad, SuiteShare, TlsVersionShare};

/// The server was restarted, or all its counters were reset, between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerRestarted;

/// The load between two readings of one server, `seconds` apart.
pub fn load_between(
    first: &LoadReading,
    second: &LoadReading,
    seconds: f64,
) -> Result<ServerLoad, ServerRestarted> {
    if !first.start.is_start_of(&second.start, seconds) {
        return Err(ServerRestarted);
    }
    let own = second.own_statements.saturating_sub(first.own_statements);
    let without_own = |count: u64| count.saturating_sub(own);
    let grown = |counter: fn(&LoadReading) -> &Counter| growth(counter(first), counter(second));
    let connects = grown(|reading| &reading.connections);
    let statements = if first.statements_since == second.statements_since {
        grown(|reading| &reading.statements).map(without_own)
    } else {
        Err(LoadAbsence::Reset)
    };
    let transactions = grown(|reading| &reading.transactions).map(without_own);
    let handshakes = grown(|reading| &reading.handshakes);
    let resumed = grown(|reading| &reading.resumed_handshakes);
    let aborted = grown(|reading| &reading.aborted_connects);
    let open = open_in_both(first, second);
    let encrypted = share(handshakes, connects).or_else(|_| encrypted_share(open.as_deref()));
    let shares = open.as_deref().map_err(|absence| *absence).and_then(Shares::of);
    let per_s = |count: Result<u64, LoadAbsence>| count.map(|count| count as f64 / seconds);
    let mut values = Values::default();
    Ok(ServerLoad {
        seconds,
        connects_per_s: values.get(LoadValue::ConnectsPerS, per_s(connects)),
        statements_per_s: values.get(LoadValue::StatementsPerS, per_s(statements)),
        statements_per_connection: values
            .get(LoadValue::StatementsPerConnection, ratio(statements, connects)),
        transactions_per_s: values.get(LoadValue::TransactionsPerS, per_s(transactions)),
        encrypted_connect_share: values.get(LoadValue::EncryptedConnectShare, encrypted),
        versions: values
            .get(LoadValue::Versions, shares.as_ref().map(Shares::versions).map_err(|absence| *absence))
            .unwrap_or_default(),
        suites: values
            .get(LoadValue::Suites, shares.as_ref().map(Shares::suites).map_err(|absence| *absence))
            .unwrap_or_default(),
        resumed_share: values.get(LoadValue::ResumedShare, share(resumed, handshakes)),
        aborted_connects_per_s: values.get(LoadValue::AbortedConnectsPerS, per_s(aborted)),
        connected_clients: values.get(LoadValue::ConnectedClients, second.connected_clients),
        most_connected_clients: values.get(LoadValue::MostConnectedClients, second.most_connected_clients),
        absent: values.absent,
    })
}

type Counter = Result<CountsByPart, LoadAbsence>;

/// Collects why values are absent.
#[derive(Default)]
struct Values {
    absent: BTreeMap<LoadValue, LoadAbsence>,
}

impl Values {
    fn get<T>(&mut self, name: LoadValue, value: Result<T, LoadAbsence>) -> Option<T> {
        value.inspect_err(|absence| _ = self.absent.insert(name, *absence)).ok()
    }
}

/// A database that was created in between counts from 0, and one that was dropped does not count.
fn growth(first: &Counter, second: &Counter) -> Result<u64, LoadAbsence> {
    let (first, second) =
        (first.as_ref().map_err(|absence| *absence)?, second.as_ref().map_err(|absence| *absence)?);
    let grown = second.iter().map(|(part, count)| {
        let before = first.get(part).copied().unwrap_or_default();
        count.checked_sub(before).ok_or(LoadAbsence::Reset)
    });
    grown.sum()
}

fn ratio(part: Result<u64, LoadAbsence>, whole: Result<u64, LoadAbsence>) -> Result<f64, LoadAbsence> {
    match (part?, whole?) {
        (_, 0) => Err(LoadAbsence::Idle),
        (part, whole) => Ok(part as f64 / whole as f64),
    }
}

/// A handshake that began before the first reading may end after it, so the quotient can exceed 1.
fn share(part: Result<u64, LoadAbsence>, whole: Result<u64, LoadAbsence>) -> Result<f64, LoadAbsence> {
    ratio(part, whole).map(|share| share.min(1.0))
}

fn open_in_both(first: &LoadReading, second: &LoadReading) -> Result<Vec<OpenConnections>, LoadAbsence> {
    let both = [&first.open, &second.open].map(|open| open.as_deref().map_err(|absence| *absence));
    let [first, second] = both;
    Ok([first?, second?].concat())
}

fn encrypted_share(open: Result<&[OpenConnections], &LoadAbsence>) -> Result<f64, LoadAbsence> {
    let open = open.map_err(|absence| *absence)?;
    let encrypted = open.iter().filter(|open| open.tls.is_some()).map(|open| open.connections).sum();
    ratio(Ok(encrypted), Ok(count(open)))
}

fn count(open: &[OpenConnections]) -> u64 {
    open.iter().map(|open| open.connections).sum()
}

/// Connections by what they have negotiated.
struct Shares<'a> {
    open: &'a [OpenConnections],
    all: f64,
}

impl<'a> Shares<'a> {
    fn of(open: &'a [OpenConnections]) -> Result<Self, LoadAbsence> {
        match count(open) {
            0 => Err(LoadAbsence::Idle),
            all => Ok(Self { open, all: all as f64 }),
        }
    }

    fn versions(&self) -> Vec<TlsVersionShare> {
        let shares = self.by(|tls| tls.version);
        shares.into_iter().map(|(version, share)| TlsVersionShare { version, share }).collect::<Vec<_>>()
    }

    fn suites(&self) -> Vec<SuiteShare> {
        let shares = self.by(|tls| Some(tls.suite.clone()));
        shares.into_iter().map(|(suite, share)| SuiteShare { suite, share }).collect()
    }

    /// The largest share first.
    fn by<T: Ord>(&self, of: impl Fn(&OpenTls) -> Option<T>) -> Vec<(T, f64)> {
        let mut counts: BTreeMap<T, u64> = BTreeMap::new();
        for open in self.open {
            if let Some(key) = open.tls.as_ref().and_then(&of) {
                *counts.entry(key).or_default() += open.connections;
            }
        }
        let mut shares: Vec<(T, f64)> =
            counts.into_iter().map(|(key, count)| (key, count as f64 / self.all)).collect();
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        shares
    }
}
