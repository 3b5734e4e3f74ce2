//! Failures of commands: one line on stderr and an exit code.

use std::fmt::Write as _;
use std::io::Write as _;

use ciphertoll_experiment::TestbedError;
use ciphertoll_model::{ExitCode, LevelError, SpecError};

use crate::ascii::{is_plain, on_screen};

#[derive(Debug)]
pub(crate) struct Failure {
    exit_code: ExitCode,
    output: Output,
}

#[derive(Debug)]
enum Output {
    /// One line for stderr.
    Line(String),
    /// Help or version.
    Clap(clap::Error),
}

impl Failure {
    pub(crate) fn new(exit_code: ExitCode, line: impl Into<String>) -> Self {
        Self { exit_code, output: Output::Line(line.into()) }
    }

    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, line)
    }

    /// Keeps help and version as they are; reduces an error and its tip to one line.
    pub(crate) fn from_clap(error: clap::Error) -> Self {
        use clap::error::ErrorKind;
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Self { exit_code: ExitCode::Done, output: Output::Clap(error) }
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Self { exit_code: ExitCode::Usage, output: Output::Clap(error) }
            }
            _ => Self::usage(one_line(&error.to_string())),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        self.exit_code
    }

    #[expect(clippy::print_stderr, reason = "all errors are printed here")]
    pub(crate) fn print(&self) {
        match &self.output {
            Output::Line(line) => eprintln!("ciphertoll: {}", on_screen(line)),
            Output::Clap(error) if is_plain() && !error.use_stderr() => {
                let help = error.render().to_string();
                drop(std::io::stdout().write_all(on_screen(&help).as_bytes()));
            }
            // There is no other place to report an error of the terminal.
            Output::Clap(error) => drop(error.print()),
        }
    }
}

/// Turns clap's `error: A` and `tip: B` into `A; B`, without the usage lines.
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

impl From<LevelError> for Failure {
    fn from(error: LevelError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(ExitCode::Internal, format!("cannot write the JSON: {error}"))
    }
}

impl From<ciphertoll_host::Error> for Failure {
    fn from(error: ciphertoll_host::Error) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}

impl From<ciphertoll_lab::Error> for Failure {
    fn from(error: ciphertoll_lab::Error) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}

impl From<TestbedError> for Failure {
    fn from(error: TestbedError) -> Self {
        Self::new(error.exit_code, error.message)
    }
}

impl From<ciphertoll_record::Error> for Failure {
    fn from(error: ciphertoll_record::Error) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}
