//! Additional comparisons in a comparison of paths: authentications, drivers, encryption at rest.

use super::Baseline;
use crate::cell::Cell;
use crate::factor::{AtRest, Auth, Driver};

/// What else is compared if paths are compared: authentications, if a server is measured with several; else drivers;
/// else encryption at rest.
pub(super) fn also_of(baseline: &Baseline, cells: &[Cell]) -> Option<Baseline> {
    let Baseline::Path(_) = baseline else { return None };
    also_auth(cells).or_else(|| also_driver(cells)).or_else(|| also_at_rest(cells))
}

/// Whether only encryption at rest is compared, with a baseline without it.
pub(super) fn only_at_rest_differs(cells: &[Cell]) -> bool {
    let one_path = cells.windows(2).all(|pair| pair[0].treatment.path == pair[1].treatment.path);
    one_path && also_auth(cells).or_else(|| also_driver(cells)).is_none() && also_at_rest(cells).is_some()
}

fn also_at_rest(cells: &[Cell]) -> Option<Baseline> {
    let is_encrypted = |cell: &Cell| !matches!(cell.treatment.at_rest, AtRest::None | AtRest::AsIs);
    let in_the_clear = cells.iter().any(|cell| cell.treatment.at_rest == AtRest::None);
    (in_the_clear && cells.iter().any(is_encrypted)).then_some(Baseline::AtRest(AtRest::None))
}

fn also_driver(cells: &[Cell]) -> Option<Baseline> {
    let mut drivers = cells.iter().map(|cell| &cell.treatment.driver);
    let first = drivers.next()?;
    let several = drivers.any(|driver| driver != first);
    let has_native = cells.iter().any(|cell| cell.treatment.driver == Driver::Native);
    several.then(|| Baseline::Driver(if has_native { Driver::Native } else { first.clone() }))
}

fn also_auth(cells: &[Cell]) -> Option<Baseline> {
    let differs = |cell: &&Cell| {
        let server = &cell.treatment.server;
        cells
            .iter()
            .any(|other| other.treatment.server == *server && other.treatment.auth != cell.treatment.auth)
    };
    let mut auths = cells.iter().filter(differs).map(|cell| cell.treatment.auth);
    let first = auths.next()?;
    Some(Baseline::Auth(if auths.any(|auth| auth == Auth::Trust) { Auth::Trust } else { first }))
}
