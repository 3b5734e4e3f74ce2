//! The data of `pg_control` that a conversion and a verification need.

use crate::cluster::has_checksum;
use crate::seal::CONTROL_BYTES;
use crate::{SEGMENT_PAGES, UNIT_BYTES};

const STATE_AT: usize = 16;
/// `checkPointCopy.redo`, since version 11: where recovery starts after a crash.
const REDO_AT: usize = 40;
const CATALOG_AT: usize = 12;
/// `FLOATFORMAT_VALUE`, 1234567.0, which precedes the sizes of the build in every version.
const FLOAT_FORMAT: [u8; 8] = 1_234_567.0_f64.to_le_bytes();
/// Index of the WAL segment size among the numbers that follow.
const SEGMENT_NUMBER: usize = 3;
/// Index of the data checksum version among the numbers that follow: page size, pages per segment, WAL page size, …
const CHECKSUMS_NUMBER: usize = 9;

/// What a verification needs, also of a server that runs or has crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunningControl {
    pub(crate) has_page_checksums: bool,
    /// Size of a WAL segment.
    pub(crate) segment_bytes: u64,
    /// Where the next start begins to replay WAL. `None` if the server was stopped cleanly.
    pub(crate) redo: Option<u64>,
}

impl RunningControl {
    pub(crate) fn parse(plaintext: &[u8; CONTROL_BYTES]) -> Result<Self, &'static str> {
        if !has_checksum(plaintext) {
            return Err("its checksum is wrong");
        }
        let mut redo = [0; 8];
        redo.copy_from_slice(&plaintext[REDO_AT..REDO_AT + 8]);
        let is_shut_down = check_shut_down(number_at(plaintext, STATE_AT)).is_ok();
        let sizes = sizes_at(plaintext)?;
        Ok(Self {
            has_page_checksums: number_at(plaintext, sizes + 4 * CHECKSUMS_NUMBER) != 0,
            segment_bytes: u64::from(number_at(plaintext, sizes + 4 * SEGMENT_NUMBER)),
            redo: (!is_shut_down).then_some(u64::from_le_bytes(redo)),
        })
    }
}

fn number_at(plaintext: &[u8; CONTROL_BYTES], at: usize) -> u32 {
    let bytes = plaintext.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_le_bytes(bytes.unwrap_or_default())
}

/// Where the sizes of the build are.
fn sizes_at(plaintext: &[u8; CONTROL_BYTES]) -> Result<usize, &'static str> {
    let at = plaintext.windows(FLOAT_FORMAT.len()).position(|window| window == FLOAT_FORMAT);
    Ok(at.ok_or("its layout is unknown")? + FLOAT_FORMAT.len())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControlFileData {
    /// `CATALOG_VERSION_NO`, a part of the directory names in tablespaces.
    pub(super) catalog: u32,
    pub(super) has_page_checksums: bool,
}

impl ControlFileData {
    /// Fails if the cluster cannot be converted.
    pub(super) fn parse(plaintext: &[u8; CONTROL_BYTES]) -> Result<Self, &'static str> {
        if !has_checksum(plaintext) {
            return Err("its checksum is wrong");
        }
        let number = |at: usize| number_at(plaintext, at);
        check_shut_down(number(STATE_AT))?;
        let sizes = sizes_at(plaintext)?;
        let [page, segment, wal_page] = [0, 4, 8].map(|at| number(sizes + at));
        if [page, wal_page] != [UNIT_BYTES as u32; 2] || u64::from(segment) != SEGMENT_PAGES {
            return Err("the server was built with other page or segment sizes than 8 kB and 1 GB");
        }
        let has_page_checksums = number(sizes + 4 * CHECKSUMS_NUMBER) != 0;
        Ok(Self { catalog: number(CATALOG_AT), has_page_checksums })
    }
}

/// `DB_SHUTDOWNED` and `DB_SHUTDOWNED_IN_RECOVERY`.
fn check_shut_down(state: u32) -> Result<(), &'static str> {
    match state {
        1 | 2 => Ok(()),
        0 => Err("the cluster was starting up when it ended: start it, then stop it with `pg_ctl stop`"),
        3 => Err("the cluster was shutting down when it ended: start it, then stop it with `pg_ctl stop`"),
        4 | 5 => Err("the cluster was in recovery when it ended: start it, then stop it with `pg_ctl stop`"),
        6 => Err("the cluster was not shut down cleanly: start it, then stop it with `pg_ctl stop`"),
        _ => Err("its state is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::crc32c;

    /// The relevant fields, as version 15 writes them.
    fn control(state: u32, page: u32, checksums: u32) -> [u8; CONTROL_BYTES] {
        let mut bytes = [0; CONTROL_BYTES];
        bytes[CATALOG_AT..16].copy_from_slice(&202_209_061_u32.to_le_bytes());
        bytes[STATE_AT..20].copy_from_slice(&state.to_le_bytes());
        bytes[208..216].copy_from_slice(&FLOAT_FORMAT);
        let numbers = [page, 131_072, 8192, 16 << 20, 64, 32, 1996, 2048, 1, checksums];
        for (number, at) in numbers.into_iter().zip((216..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c(&bytes[..288]);
        bytes[288..292].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn only_a_cleanly_stopped_cluster_of_a_usual_build_is_accepted() {
        let expected = ControlFileData { catalog: 202_209_061, has_page_checksums: true };
        assert_eq!(ControlFileData::parse(&control(1, 8192, 1)), Ok(expected));
        assert_eq!(ControlFileData::parse(&control(2, 8192, 1)), Ok(expected));
        assert!(
            ControlFileData::parse(&control(1, 8192, 0)).is_ok_and(|control| !control.has_page_checksums)
        );
        for state in [0, 3, 4, 5, 6, 7] {
            assert!(ControlFileData::parse(&control(state, 8192, 1)).is_err(), "state {state}");
        }
        assert!(ControlFileData::parse(&control(1, 16_384, 1)).is_err());
        let mut damaged = control(1, 8192, 1);
        damaged[0] ^= 1;
        assert_eq!(ControlFileData::parse(&damaged), Err("its checksum is wrong"));
    }
}
