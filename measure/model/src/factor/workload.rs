//! Workloads: what one operation is.

use std::fmt;
use std::str::FromStr;

use super::{Engine, Factor, LevelError, QueryLanguage, as_text, bounded, match_name, parse_modified};
use crate::labelled;

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// `socket()` to the completed login, then an orderly close without waiting for the peer.
    Connect,
    /// A connect with queries before the close, each after the response to the previous one.
    ConnectQuery { queries: Queries },
    /// The first statement on a fresh connection, which is opened and closed outside of the measured time.
    FirstQuery,
    /// A prepared statement that reads a sysbench row by primary key.
    PointSelect,
    /// pgbench's `-S`: a prepared statement that reads an account's balance.
    SelectOnly,
    /// pgbench's default transaction: three updates, a select and an insert.
    TpcbLike,
    /// sysbench's `oltp_read_only` transaction.
    OltpReadOnly,
    /// sysbench's `oltp_read_write` transaction.
    OltpReadWrite,
    /// One statement that returns one value of a given size.
    BulkRead { bytes: Bytes },
    /// Reads a YCSB document by its key; all are equally likely.
    FindOne,
    /// Reads the first document that the server finds: `find_one()` without a filter.
    FindAny(FindAny),
    /// One operation of a YCSB core workload.
    Ycsb(YcsbMix),
    /// The user's statement, as text.
    Query,
}

labelled! {
    /// YCSB's core workloads.
    pub enum YcsbMix {
        /// Half reads, half updates of a field.
        A = "ycsb-a",
        /// 95 % reads, 5 % updates.
        B = "ycsb-b",
        /// Reads only.
        C = "ycsb-c",
        /// 95 % reads of recently inserted documents, 5 % inserts.
        D = "ycsb-d",
        /// 95 % scans of up to 100 documents, 5 % inserts.
        E = "ycsb-e",
        /// Half reads, half read-modify-write.
        F = "ycsb-f",
    }
}

labelled! {
    /// The connection of a `find` without a filter.
    pub enum FindAny {
        /// As [`Workload::ConnectQuery`].
        Connect = "connect-find-any",
        /// As [`Workload::FirstQuery`].
        First = "first-find-any",
        /// On an open connection, as [`Workload::FindOne`].
        Open = "find-any",
    }
}

bounded! {
    /// A number of bytes up to 1 GiB, printed in the largest unit that divides it: `300`, `16k`, `1m`.
    Bytes(u32) up to 0x4000_0000, read by number
}

bounded! {
    /// The number of queries of a short-lived connection.
    Queries(u16) up to 1000, read by count
}

/// How operations use connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionUse {
    /// Each operation opens and closes a connection (connection churn).
    PerOperation,
    /// Connections are opened before the window and stay open.
    Pooled,
}

/// The tables of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dataset {
    /// sysbench's `sbtest1`.
    Sysbench,
    /// pgbench's accounts, branches, tellers and history.
    Pgbench,
    /// YCSB's `usertable`.
    Ycsb,
}

impl YcsbMix {
    /// YCSB's name for it.
    pub fn letter(self) -> char {
        char::from(b'A' + self as u8)
    }
}

impl Queries {
    pub const ONE: Self = Self(1);
}

impl Bytes {
    /// The default of a bulk read.
    pub const DEFAULT: Self = Self(16 << 10);
    const UNITS: [(&'static str, u32); 2] = [("m", 1 << 20), ("k", 1 << 10)];

    /// Parses `300`, `16k`, `1m`.
    pub fn parse(text: &str) -> Option<Self> {
        let unit = Self::UNITS.iter().find_map(|(name, size)| Some((text.strip_suffix(name)?, *size)));
        let (number, size) = unit.unwrap_or((text, 1));
        number.parse::<u32>().ok()?.checked_mul(size).and_then(Self::new)
    }
}

impl Workload {
    /// A connect with one query.
    pub const CONNECT_QUERY: Self = Self::ConnectQuery { queries: Queries::ONE };

    /// Every workload; modifiers have their defaults.
    pub const ALL: [Self; 20] = [
        Self::Connect,
        Self::CONNECT_QUERY,
        Self::FirstQuery,
        Self::PointSelect,
        Self::SelectOnly,
        Self::TpcbLike,
        Self::OltpReadOnly,
        Self::OltpReadWrite,
        Self::BulkRead { bytes: Bytes::DEFAULT },
        Self::FindOne,
        Self::FindAny(FindAny::Connect),
        Self::FindAny(FindAny::First),
        Self::FindAny(FindAny::Open),
        Self::Ycsb(YcsbMix::A),
        Self::Ycsb(YcsbMix::B),
        Self::Ycsb(YcsbMix::C),
        Self::Ycsb(YcsbMix::D),
        Self::Ycsb(YcsbMix::E),
        Self::Ycsb(YcsbMix::F),
        Self::Query,
    ];

    /// The name without modifiers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectQuery { .. } => "connect-query",
            Self::FirstQuery => "first-query",
            Self::PointSelect => "point-select",
            Self::SelectOnly => "select-only",
            Self::TpcbLike => "tpcb-like",
            Self::OltpReadOnly => "oltp-read-only",
            Self::OltpReadWrite => "oltp-read-write",
            Self::BulkRead { .. } => "bulk-read",
            Self::FindOne => "find-one",
            Self::FindAny(find) => find.label(),
            Self::Ycsb(mix) => mix.label(),
            Self::Query => "query",
        }
    }

    pub fn connection_use(self) -> ConnectionUse {
        match self {
            Self::Connect
            | Self::ConnectQuery { .. }
            | Self::FirstQuery
            | Self::FindAny(FindAny::Connect | FindAny::First) => ConnectionUse::PerOperation,
            _ => ConnectionUse::Pooled,
        }
    }

    /// Whether it changes rows.
    pub fn writes(self) -> bool {
        match self {
            Self::TpcbLike | Self::OltpReadWrite => true,
            Self::Ycsb(mix) => mix != YcsbMix::C,
            _ => false,
        }
    }

    /// Why servers of `engine` do not support it, if so.
    pub fn impossible(self, engine: Engine) -> Option<String> {
        let name = engine.display_name();
        match (self, engine.query_language()) {
            (Self::FindOne | Self::FindAny(_) | Self::Ycsb(_), QueryLanguage::Sql) => {
                Some(format!("{self} needs a document database, and {name} is not one"))
            }
            (
                Self::PointSelect
                | Self::SelectOnly
                | Self::TpcbLike
                | Self::OltpReadOnly
                | Self::OltpReadWrite
                | Self::BulkRead { .. },
                QueryLanguage::Documents,
            ) => Some(format!("{self} needs SQL, which {name} does not support")),
            _ => None,
        }
    }

    /// The tables that it needs on `engine`, if any. On a document database, the first query reads a document.
    pub fn dataset(self, engine: Engine) -> Option<Dataset> {
        match self {
            Self::ConnectQuery { .. } | Self::FirstQuery
                if engine.query_language() == QueryLanguage::Documents =>
            {
                Some(Dataset::Ycsb)
            }
            Self::FindOne | Self::FindAny(_) | Self::Ycsb(_) => Some(Dataset::Ycsb),
            Self::Connect | Self::ConnectQuery { .. } | Self::BulkRead { .. } | Self::Query => None,
            Self::FirstQuery | Self::PointSelect | Self::OltpReadOnly | Self::OltpReadWrite => {
                Some(Dataset::Sysbench)
            }
            Self::SelectOnly | Self::TpcbLike => Some(Dataset::Pgbench),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = Self::UNITS.iter().find(|(_, size)| self.0.is_multiple_of(*size));
        match unit {
            Some((name, size)) => write!(formatter, "{}{name}", self.0 / size),
            None => self.0.fmt(formatter),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        match self {
            Self::BulkRead { bytes } => write!(formatter, "+bytes={bytes}"),
            Self::ConnectQuery { queries } if *queries != Queries::ONE => {
                write!(formatter, "+queries={}", queries.count())
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Workload {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let level = |name: &str| match_name(Factor::Workload.label(), name, &Self::ALL, Self::name);
        parse_modified(Factor::Workload, text, level, |workload, modifier| {
            let out_of_range = |expected| LevelError::out_of_range(Factor::Workload.label(), text, expected);
            Ok(match (workload, modifier.split_once('=')) {
                (Self::BulkRead { .. }, Some(("bytes", size))) => {
                    let expected = "bytes from 1 to 1024m, such as 300, 16k or 1m";
                    let bytes = Bytes::parse(size).ok_or_else(|| out_of_range(expected))?;
                    Some(Self::BulkRead { bytes })
                }
                (Self::ConnectQuery { .. }, Some(("queries", count))) => {
                    let queries = count.parse().ok().and_then(Queries::new);
                    let queries = queries.ok_or_else(|| out_of_range("queries from 1 to 1000"))?;
                    Some(Self::ConnectQuery { queries })
                }
                _ => None,
            })
        })
    }
}

as_text!(Workload);
