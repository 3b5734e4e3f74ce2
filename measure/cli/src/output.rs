//! What commands print on stdout, or write to a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ciphertoll_model::ExitCode;
use ciphertoll_record::Caller;

use crate::ascii::on_screen;
use crate::failure::Failure;

/// Prints text for a person.
pub(crate) fn print_text(text: &str) -> Result<ExitCode, Failure> {
    print_document(&on_screen(text))
}

/// Prints the only document on stdout. A closed pipe is not an error.
pub(crate) fn print_document(document: &str) -> Result<ExitCode, Failure> {
    let mut stdout = io::stdout().lock();
    // Some documents, such as CSV, end with a newline already.
    let document = document.strip_suffix('\n').unwrap_or(document);
    let written = stdout.write_all(document.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ExitCode::HostResource, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(ExitCode::Done),
    }
}

/// A file that is opened before the document for it exists, and keeps its content until then.
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
    /// Whether it has a length that can be set.
    is_file: bool,
}

impl OutputFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let file = match made {
            Ok(file) => {
                if let Some(caller) = Caller::owning_parent(path) {
                    // Best effort: a file that root owns is better than none.
                    let _ = caller.give(&file);
                }
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                OpenOptions::new().write(true).create(true).truncate(false).open(path)
            }
            Err(error) => Err(error),
        };
        let file = file.map_err(|error| cannot_write(path, &error))?;
        // A pipe or a terminal has no length.
        let is_file = file.metadata().is_ok_and(|about| about.is_file());
        Ok(Self { path: path.to_owned(), file, is_file })
    }

    /// Writes the document in place of what was in the file. It ends in a newline.
    pub(crate) fn replace(mut self, document: &str) -> Result<(), Failure> {
        let newline = if document.ends_with('\n') { "" } else { "\n" };
        let emptied = if self.is_file { self.file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| self.file.write_all(format!("{document}{newline}").as_bytes()));
        written.map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(ExitCode::HostResource, format!("cannot write {}: {error}", path.display()))
}
