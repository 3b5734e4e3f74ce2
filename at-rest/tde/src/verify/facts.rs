//! What is known of the whole cluster before its files are verified.

use std::fs;
use std::io;
use std::path::Path;

use crate::cluster::{self, CONTROL_PATH, ClusterState, DiskFile, VERSION_PATH};
use crate::convert::control::RunningControl;
use crate::error::Doing;
use crate::seal::CONTROL_BYTES;
use crate::{EncryptionEngine, FileClass, KeyError, OpenFile};

/// Where recovery of a base backup starts.
const BACKUP_LABEL: &str = "backup_label";

/// What is known of the whole cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterFacts {
    pub(super) has_page_checksums: bool,
    /// Size of a WAL segment; 0 if it is unknown.
    pub(super) segment_bytes: u64,
    /// Where recovery will start. It replaces pages that were changed from there on.
    pub(super) recovers_from: Option<u64>,
}

impl ClusterFacts {
    pub(super) fn read(data: &Path, engine: &mut EncryptionEngine) -> Result<Self, KeyError> {
        let refused = |why| KeyError::NotVerifiable { data: data.to_owned(), why };
        let state = cluster::examine(data, engine)?;
        match state {
            ClusterState::Empty => return Err(refused("it holds no cluster")),
            ClusterState::Plain => return Err(refused("the cluster is not encrypted")),
            ClusterState::OtherKeys => return Err(refused("the keys do not match the cluster")),
            ClusterState::OtherVersion(_) => {
                return Err(refused(
                    "it was encrypted by another version of ciphertoll; verify it with that one",
                ));
            }
            _ => {}
        }
        let unknown = Self { has_page_checksums: false, segment_bytes: 0, recovers_from: None };
        if !matches!(state, ClusterState::Sealed | ClusterState::Unsealed(VERSION_PATH)) {
            // Becomes a finding.
            return Ok(unknown);
        }
        let path = data.join(CONTROL_PATH);
        let Some(file) = opened(&path)? else { return Ok(unknown) };
        let mut plaintext = [0; CONTROL_BYTES];
        engine
            .read_at(&mut OpenFile::new(FileClass::Control), &file, &mut plaintext, 0)
            .doing("read", &path)?;
        let control = RunningControl::parse(&plaintext).map_err(refused)?;
        let label = fs::read(data.join(BACKUP_LABEL)).ok().and_then(|label| start_of_backup(&label));
        // A server that runs replaces nothing.
        let redo = control.redo.filter(|_| cluster::running_server(data).is_none());
        Ok(Self {
            has_page_checksums: control.has_page_checksums,
            segment_bytes: control.segment_bytes,
            recovers_from: label.or(redo),
        })
    }
}

/// `START WAL LOCATION: 0/2000028 (file 000000010000000000000002)`.
fn start_of_backup(label: &[u8]) -> Option<u64> {
    let text = str::from_utf8(label).ok()?;
    let (_, rest) = text.split_once("START WAL LOCATION: ")?;
    let (high, low) = rest.split_whitespace().next()?.split_once('/')?;
    let half = |digits| u64::from_str_radix(digits, 16).ok();
    Some(half(high)? << 32 | half(low)?)
}

pub(super) fn opened(path: &Path) -> Result<Option<DiskFile>, KeyError> {
    match fs::File::open(path) {
        Ok(file) => Ok(Some(DiskFile(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing("read", path),
    }
}
