//! Removal of the records that trials inserted, so that every trial starts with the same collection.

use ciphertoll_model::ycsb;
use serde_json::json;

use super::commands::{ask, command, number};
use crate::error::Error;
use crate::servers::control::{self, ControlLogin};

/// Keys per `delete` command.
const BATCH_KEYS: u64 = 500;

/// Removes the records of trials. A trial inserts consecutive numbers from its entry in `firsts` on. Only records whose
/// clients got no answer may be missing, far fewer than the keys of one command: a command that removes nothing is the last.
pub(crate) fn remove_inserted(control: &ControlLogin, firsts: &[u64]) -> Result<(), Error> {
    if firsts.is_empty() {
        return Ok(());
    }
    let mut client = control.connect()?;
    for first in firsts {
        let mut next = *first;
        loop {
            let keys: Vec<String> = (next..next.saturating_add(BATCH_KEYS)).map(ycsb::key).collect();
            let deletes = json!([{ "q": { "_id": { "$in": keys } }, "limit": 0 }]);
            let delete = command("delete", &ycsb::COLLECTION.into(), &[("deletes", deletes)]);
            let answer = ask(&mut client, "remove inserted documents", &delete)?;
            if answer.get("n").and_then(number).unwrap_or_default() == 0 {
                break;
            }
            next = next.saturating_add(BATCH_KEYS);
        }
    }
    control::close(client)
}
