//! `completions` and `man`: the files that a package installs with the program.

use ciphertoll_model::ExitCode;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::{Arguments, SHELLS};
use crate::failure::Failure;
use crate::output::print_document;

const NAME: &str = "ciphertoll";

pub(crate) fn completions(shell: Option<Shell>) -> Result<ExitCode, Failure> {
    let Some(shell) = shell else {
        let names = SHELLS.map(|(name, ..)| name).join(", ");
        return Err(Failure::usage(format!("completions needs a shell: {names}")));
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut script);
    print_text(script)
}

/// Prints the man page of `command`, or of the whole program.
pub(crate) fn man(command: Option<&str>) -> Result<ExitCode, Failure> {
    let mut whole = Arguments::command();
    // Sets the full names of the subcommands.
    whole.build();
    let page_of = match command {
        None => whole,
        Some(name) => whole.find_subcommand(name).cloned().ok_or_else(|| unknown(&whole, name))?,
    };
    let mut page = Vec::new();
    let rendered = Man::new(page_of).render(&mut page);
    rendered
        .map_err(|error| Failure::new(ExitCode::Internal, format!("cannot write the man page: {error}")))?;
    print_text(page)
}

fn unknown(whole: &clap::Command, name: &str) -> Failure {
    let names: Vec<&str> = whole.get_subcommands().map(clap::Command::get_name).collect();
    Failure::usage(format!("unknown command \"{name}\"; the commands are {}", names.join(", ")))
}

fn print_text(text: Vec<u8>) -> Result<ExitCode, Failure> {
    let text =
        String::from_utf8(text).map_err(|error| Failure::new(ExitCode::Internal, error.to_string()))?;
    print_document(&text)
}
