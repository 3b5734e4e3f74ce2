//! What a client does on connections that stay: a transaction as data, so that every driver, ours or
//! a user's, runs the same.

use serde::{Deserialize, Serialize};

/// One transaction. Its variables are drawn, then its steps are done one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The statements that steps name by index. Prepared ones are prepared once on each connection.
    pub statements: Vec<Statement>,
    /// Drawn anew for each transaction, in this order.
    pub variables: Vec<Draw>,
    /// What is sent, in this order, each when the answer to the last has come.
    pub steps: Vec<Step>,
    /// Errors after which the transaction is rolled back and begun again with the same variables, as
    /// the server words them: an SQLSTATE, or MySQL's number.
    #[serde(default)]
    pub retry_on: Vec<String>,
    /// An answer with fewer payload bytes than this is an error: a value was cut short, or is NULL.
    #[serde(default)]
    pub min_row_bytes: u64,
}

/// A statement, in the engine's own placeholders: `?` or `$1`.
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
}
