//! House rules as tests: each failure names the file, the line and the rule.

mod arrows;
mod documents;
mod source;
mod tree;
