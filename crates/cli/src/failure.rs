//! A failure as a person sees it: one line and an exit code from the table.

use std::fmt::Write as _;

use ciphertoll_experiment::BenchError;
use ciphertoll_model::{ExitCode, SpecError};

/// A failure as a person sees it.
#[derive(Debug)]
pub(crate) struct Failure {
    exit_code: ExitCode,
    output: Output,
}

#[derive(Debug)]
enum Output {
    /// One line for stderr.
    Line(String),
    /// What was asked for after all: help or version, for stdout.
    Asked(clap::Error),
}

impl Failure {
    pub(crate) fn new(exit_code: ExitCode, line: impl Into<String>) -> Self {
        Self { exit_code, output: Output::Line(line.into()) }
    }

    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, line)
    }

    /// Help and version as they are; an error as one line with its nearest right thing.
    pub(crate) fn from_clap(error: clap::Error) -> Self {
        use clap::error::ErrorKind;
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Self { exit_code: ExitCode::Done, output: Output::Asked(error) }
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Self { exit_code: ExitCode::Usage, output: Output::Asked(error) }
            }
            _ => Self::usage(one_line(&error.to_string())),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        self.exit_code
    }

    #[expect(clippy::print_stderr, reason = "the one place where errors are told")]
    pub(crate) fn tell(&self) {
        match &self.output {
            Output::Line(line) => eprintln!("ciphertoll: {line}"),
            // Nothing can be told where even the terminal refuses.
            Output::Asked(error) => drop(error.print()),
        }
    }
}

/// clap's error and its tip, without usage and pointers: `error: A` and `tip: B` become `A; B`.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).take_while(|part| !part.starts_with("Usage:")) {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        let part = part.strip_prefix("tip: ").unwrap_or(part);
        if part.is_empty() || part.starts_with("For more information") {
            continue;
        }
        let separator = match line.chars().last() {
            None => "",
            Some(':' | ',') => " ",
            Some(_) => "; ",
        };
        let _ = write!(line, "{separator}{part}");
    }
    line
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        Self::new(error.exit_code, error.message)
    }
}

impl From<ciphertoll_record::Error> for Failure {
    fn from(error: ciphertoll_record::Error) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}
