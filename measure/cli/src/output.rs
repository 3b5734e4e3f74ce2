//! What commands print on stdout.

use std::io::Write as _;

use ciphertoll_model::ExitCode;

use crate::ascii::on_screen;
use crate::failure::Failure;

/// Prints text for a person.
pub(crate) fn print_text(text: &str) -> Result<ExitCode, Failure> {
    print_document(&on_screen(text))
}

/// Prints the only document on stdout. A closed pipe is not an error.
pub(crate) fn print_document(document: &str) -> Result<ExitCode, Failure> {
    let mut stdout = std::io::stdout().lock();
    // Some documents, such as CSV, end with a newline already.
    let document = document.strip_suffix('\n').unwrap_or(document);
    let written = stdout.write_all(document.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ExitCode::HostResource, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(ExitCode::Done),
    }
}
