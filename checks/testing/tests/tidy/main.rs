//! The project's rules as tests. Each failure names the file, the line and the rule.

mod arrows;
mod cycles;
mod documents;
mod names;
mod paths;
mod source;
mod system_calls;
mod threat_model;
mod tree;
