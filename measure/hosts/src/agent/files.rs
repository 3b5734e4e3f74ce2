//! The files of a trial on its host: in a private directory that goes with the trial.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ciphertoll_model::{TrialSpec, TrialStart};
use ciphertoll_record::Scratch;

use super::message::NotStarted;
use crate::protocol::TrialFiles;
use crate::secret::SecretBytes;

/// The directory of a trial's files, removed when dropped.
pub(super) struct PlacedFiles(PathBuf);

impl Drop for PlacedFiles {
    fn drop(&mut self) {
        // The agent's scratch directory goes with everything in it anyway.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the files, and lets `spec` name them.
pub(super) fn place(
    scratch: &Scratch,
    number: u64,
    spec: &mut TrialSpec,
    files: &TrialFiles,
) -> Result<PlacedFiles, NotStarted> {
    const PRIVATE: u32 = 0o700;
    let directory = scratch.make_directory(&format!("trial-{number}"), PRIVATE)?;
    let placed = PlacedFiles(directory);
    let write = |name: &str, content: &SecretBytes| {
        let path = placed.0.join(name);
        write_private(&path, content).map(|()| path).map_err(NotStarted::File)
    };
    spec.start = TrialStart::WhenTold;
    spec.password_file = write("password", &files.password)?;
    if let Some(tls) = &mut spec.tls {
        tls.ca_file = files.ca.as_ref().map(|ca| write("ca.pem", ca)).transpose()?;
        let identity = tls.identity.as_mut().zip(files.certificate.as_ref().zip(files.key.as_ref()));
        if let Some((identity, (certificate, key))) = identity {
            identity.certificate_file = write("certificate.pem", certificate)?;
            identity.key_file = write("key.pem", key)?;
        }
    }
    Ok(placed)
}

fn write_private(path: &Path, content: &SecretBytes) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.expose())
}
