//! Scripts: a transaction as data, so that every driver, ours or a user's, runs the same.

use serde::{Deserialize, Serialize};

/// A transaction. Its variables are drawn, then its steps run in order. A mix has branches instead of steps: a branch
/// is drawn by weight, then the variables that it uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The statements, referred to by index. Prepared ones are prepared once on each connection.
    pub statements: Vec<ScriptStatement>,
    /// Drawn for each transaction, in this order.
    pub variables: Vec<Draw>,
    /// Sent in this order, each after the response to the previous one.
    pub steps: Vec<ScriptStep>,
    /// Alternative transactions, instead of steps. Only scripts of document databases have branches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Branch>,
    /// Errors after which the transaction is rolled back and retried with the same variables: SQLSTATEs, or MySQL's
    /// error numbers.
    #[serde(default)]
    pub retry_on: Vec<String>,
    /// A result with fewer payload bytes is an error: a value was truncated or is NULL.
    #[serde(default)]
    pub min_row_bytes: u64,
}

/// One of several alternative transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// Relative frequency. The weights of a script sum to at least 1.
    pub weight: u32,
    /// Only the variables that these steps use, and those they depend on, are drawn.
    pub steps: Vec<ScriptStep>,
    /// Replaces [`Script::min_row_bytes`] for this branch.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub min_row_bytes: u64,
}

/// A statement: SQL with the engine's placeholders, `?` or `$1`; or the JSON text of a MongoDB command, whose keys
/// keep their order, with `{"$param": N}` for the step's parameter N, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptStatement {
    pub sql: String,
    pub protocol: StatementProtocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatementProtocol {
    /// As text; parameters, which must be numbers, replace the placeholders.
    Text,
    /// Prepared once, then executed.
    Prepared,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptStep {
    /// Index into [`Script::statements`].
    pub statement: usize,
    /// Indices into [`Script::variables`], one for each placeholder.
    #[serde(default)]
    pub parameters: Vec<usize>,
}

/// The distribution of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "draw")]
pub enum Draw {
    /// Integers of a range, all equally likely.
    Uniform { first: i64, last: i64 },
    /// sysbench's `special`: a quarter of the draws are means of 12 uniform ones, the rest is from the middle
    /// hundredth.
    Special { first: i64, last: i64 },
    /// Another variable's number plus an offset.
    Offset {
        /// Index of an earlier variable.
        of: usize,
        by: i64,
    },
    /// Groups of eleven random digits joined by `-`, as in sysbench's text columns.
    DigitGroups { groups: u8 },
    /// YCSB's `ScrambledZipfianGenerator`: a few hot records, spread over all.
    ScrambledZipfian { first: i64, last: i64 },
    /// The number of a new record: [`crate::ycsb::first_insert`] for the trial's first, from its seed and start time,
    /// then consecutive numbers over all of its clients and threads. These are far from the loaded records and from
    /// other trials on the same server, so that keys do not collide.
    Insert,
    /// YCSB's `SkewedLatestGenerator`: the newest record is the most popular. Covers the loaded records, from 0, and
    /// the trial's inserts ([`Draw::Insert`]) before the first that the server has not acknowledged.
    Latest { loaded: i64 },
    /// A record's key as text: `user` and the [`crate::ycsb::key_hash`] of another variable's number.
    YcsbKey {
        /// Index of an earlier variable.
        of: usize,
    },
    /// Printable ASCII text, from space to tilde, all characters equally likely.
    Printable { bytes: u16 },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The programs in `drivers/` do not know every field.
    #[test]
    fn a_script_without_branches_omits_the_field() {
        let script = Script {
            statements: vec![ScriptStatement {
                sql: "SELECT ?".to_owned(),
                protocol: StatementProtocol::Prepared,
            }],
            variables: vec![Draw::Uniform { first: 1, last: 2 }],
            steps: vec![ScriptStep { statement: 0, parameters: vec![0] }],
            ..Script::default()
        };
        let expected = concat!(
            r#"{"statements":[{"sql":"SELECT ?","protocol":"prepared"}],"#,
            r#""variables":[{"draw":"uniform","first":1,"last":2}],"#,
            r#""steps":[{"statement":0,"parameters":[0]}],"retry_on":[],"min_row_bytes":0}"#
        );
        assert_eq!(serde_json::to_string(&script).unwrap(), expected);
    }

    #[test]
    fn the_format_of_a_mix() {
        let step = |parameter| ScriptStep { statement: 0, parameters: vec![parameter] };
        let script = Script {
            statements: vec![ScriptStatement {
                sql: r#"{"find":"usertable","filter":{"_id":{"$param":0}}}"#.to_owned(),
                protocol: StatementProtocol::Text,
            }],
            variables: vec![
                Draw::ScrambledZipfian { first: 0, last: 9 },
                Draw::Insert,
                Draw::Latest { loaded: 10 },
                Draw::YcsbKey { of: 2 },
                Draw::Printable { bytes: 100 },
            ],
            branches: vec![
                Branch { weight: 19, steps: vec![step(3)], min_row_bytes: 1000 },
                Branch { weight: 1, steps: vec![step(4)], min_row_bytes: 0 },
            ],
            ..Script::default()
        };
        let written = serde_json::to_string(&script).unwrap();
        let expected = concat!(
            r#"{"statements":[{"sql":"{\"find\":\"usertable\",\"filter\":{\"_id\":{\"$param\":0}}}","#,
            r#""protocol":"text"}],"variables":[{"draw":"scrambled_zipfian","first":0,"last":9},"#,
            r#"{"draw":"insert"},{"draw":"latest","loaded":10},{"draw":"ycsb_key","of":2},"#,
            r#"{"draw":"printable","bytes":100}],"steps":[],"branches":[{"weight":19,"#,
            r#""steps":[{"statement":0,"parameters":[3]}],"min_row_bytes":1000},"#,
            r#"{"weight":1,"steps":[{"statement":0,"parameters":[4]}]}],"retry_on":[],"min_row_bytes":0}"#
        );
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_str::<Script>(&written).unwrap(), script);
    }
}
