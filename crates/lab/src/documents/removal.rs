//! What trials have inserted is removed again, so that no trial finds a longer collection than the one before.

use ciphertoll_model::ycsb;
use serde_json::json;

use super::{ask, command, number};
use crate::control::{self, Control};
use crate::error::Error;

/// Keys of one `delete`.
const BATCH_KEYS: u64 = 500;
/// Removes what trials have inserted. A trial inserts records of consecutive numbers, of which `firsts` has the first of each;
/// only those are left out whose clients got no answer, and they are far fewer than one command's keys: a command that
/// removes none has come to the end.
pub(crate) fn remove_inserted(control: &Control, firsts: &[u64]) -> Result<(), Error> {
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
            let answer = ask(&mut client, "remove what was inserted", &delete)?;
            if answer.get("n").and_then(number).unwrap_or_default() == 0 {
                break;
            }
            next = next.saturating_add(BATCH_KEYS);
        }
    }
    control::close(client)
}
