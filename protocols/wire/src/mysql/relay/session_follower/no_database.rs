//! A client whose default database no longer exists, or may no longer be used.

use crate::mysql::{
    codec::{change_user, packet::Header},
    relay::session_follower::{COM_QUIT, CommandAction, PendingCommand, SessionFollower, is_silent},
    sql::effects::DefaultDatabase,
};

/// A longer `USE` is refused.
const MAX_USE_BYTES: usize = 1 << 10;

impl SessionFollower {
    /// What to do with a command; `None` if the client may send it.
    #[cold]
    pub(super) fn without_database(&self, kind: u8, header: Header, arrived: &[u8]) -> Option<CommandAction> {
        // Whether the client then has a database is not known yet.
        let is_choosing = |pending: &PendingCommand| match pending {
            PendingCommand::Query(Some(effects)) => effects.database == DefaultDatabase::MayDiffer,
            _ => false,
        };
        if self.pending.iter().any(is_choosing) {
            return Some(CommandAction::NeedInput);
        }
        match kind {
            // COM_INIT_DB, COM_PING and COM_RESET_CONNECTION.
            COM_QUIT | 0x02 | 0x0e | 0x1f | change_user::HEADER => return None,
            _ if is_silent(kind) => return None,
            // COM_QUERY.
            0x03 if header.length <= MAX_USE_BYTES => {
                if arrived.len() < header.length {
                    return Some(CommandAction::NeedInput);
                }
                if is_use(&arrived[1..]) {
                    return None;
                }
            }
            _ => {}
        }
        Some(CommandAction::Discard(self.no_database.clone()))
    }
}

/// Whether a text is one `USE`.
fn is_use(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let Some((word, name)) = text.split_at_checked(3) else { return false };
    let name = name.strip_suffix(b";").unwrap_or(name);
    let has_blank = name.first().is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b'`');
    word.eq_ignore_ascii_case(b"use") && has_blank && !name.contains(&b';')
}
