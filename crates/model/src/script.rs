//! What a client does on connections that stay: a transaction as data, so that every driver, ours or
//! a user's, runs the same.

use serde::{Deserialize, Serialize};

/// One transaction. Its variables are drawn, then its steps are done one after the other. A mix has branches in place of
/// steps: one of them is drawn by weight, then the variables that it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The statements that steps name by index. Prepared ones are prepared once on each connection.
    pub statements: Vec<Statement>,
    /// Drawn anew for each transaction, in this order.
    pub variables: Vec<Draw>,
    /// What is sent, in this order, each when the answer to the last has come.
    pub steps: Vec<Step>,
    /// In place of steps: what else a transaction may be. Only scripts for documents have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Branch>,
    /// Errors after which the transaction is rolled back and begun again with the same variables, as
    /// the server words them: an SQLSTATE, or MySQL's number.
    #[serde(default)]
    pub retry_on: Vec<String>,
    /// An answer with fewer payload bytes than this is an error: a value was cut short, or is NULL.
    #[serde(default)]
    pub min_row_bytes: u64,
}

/// One of several things that a transaction may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// How often it is, beside the others' weights. The weights of a script add up to at least 1.
    pub weight: u32,
    /// What is sent. Of the script's variables only those are drawn that these take, and those that they follow from.
    pub steps: Vec<Step>,
    /// As [`Script::min_row_bytes`], which does not hold for branches.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_row_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A statement: SQL in the engine's own placeholders, `?` or `$1`; or the JSON text of a command for documents, whose keys
/// keep their order, with `{"$param": N}` where the step's parameter N, counted from 0, goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The text.
    pub sql: String,
    /// How it is sent.
    pub protocol: StatementProtocol,
}

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatementProtocol {
    /// As text; parameters, numbers only, are written where the placeholders stand.
    Text,
    /// Prepared once, then executed by name or number.
    Prepared,
}

/// A statement sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Index into [`Script::statements`].
    pub statement: usize,
    /// Indices into [`Script::variables`], one for each placeholder.
    #[serde(default)]
    pub parameters: Vec<usize>,
}

/// How a variable gets its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "draw")]
pub enum Draw {
    /// Each whole number of a range is equally likely.
    Uniform {
        /// The least.
        first: i64,
        /// The greatest.
        last: i64,
    },
    /// sysbench's `special`: a quarter of the draws near the middle by the mean of 12 uniform ones, the
    /// rest from the middle hundredth.
    Special {
        /// The least.
        first: i64,
        /// The greatest.
        last: i64,
    },
    /// Another variable's number and so many more.
    Offset {
        /// Index of a variable that is drawn earlier.
        of: usize,
        /// How many more.
        by: i64,
    },
    /// Groups of eleven random digits joined by `-`, as in sysbench's text columns.
    DigitGroups {
        /// How many groups.
        groups: u8,
    },
    /// YCSB's `ScrambledZipfianGenerator`: few records are popular, and these are spread over all.
    ScrambledZipfian {
        /// The least.
        first: i64,
        /// The greatest.
        last: i64,
    },
    /// The number of a record that is new: [`crate::ycsb::first_insert`] for the trial's first, by its seed and when it begins,
    /// then one more for each, over all of its clients and threads. That is far beyond the numbers of records that are loaded, and
    /// far from those of other trials and runs on the same server, so that no key comes twice.
    Insert,
    /// YCSB's `SkewedLatestGenerator`: the newest record is the most popular. Over the records that are loaded, 0 and
    /// following, and the trial's inserts ([`Draw::Insert`]), up to the first that the server has not acknowledged.
    Latest {
        /// How many records are loaded.
        loaded: i64,
    },
    /// The key, a text, of the record with another variable's number: [`crate::ycsb::key_hash`] of it behind `user`.
    YcsbKey {
        /// Index of a variable that is drawn earlier.
        of: usize,
    },
    /// A text of printable ASCII characters, from space to tilde, each equally likely.
    Printable {
        /// How many.
        bytes: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the programs in `drivers/` read has no word that they do not know.
    #[test]
    fn a_script_without_branches_says_nothing_of_them() {
        let script = Script {
            statements: vec![Statement { sql: "SELECT ?".to_owned(), protocol: StatementProtocol::Prepared }],
            variables: vec![Draw::Uniform { first: 1, last: 2 }],
            steps: vec![Step { statement: 0, parameters: vec![0] }],
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
    fn a_mix_is_written_so() {
        let step = |parameter| Step { statement: 0, parameters: vec![parameter] };
        let script = Script {
            statements: vec![Statement {
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
