//! The user that servers run as: never root, and never with more rights than the caller.

use nix::unistd::{Gid, Uid, User, geteuid};
use serde::{Deserialize, Serialize};

use crate::error::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAs {
    Ourselves,
    /// Another user, because we are root.
    Other(ServerUser),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUser {
    pub uid: u32,
    pub gid: u32,
}

impl RunAs {
    /// Ourselves; if we are root, the caller of `sudo`, else `nobody`.
    pub fn choose() -> Result<Self, Error> {
        if !geteuid().is_root() {
            return Ok(Self::Ourselves);
        }
        let caller =
            std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok()).filter(|&uid: &u32| uid != 0);
        let found = match caller {
            Some(uid) => User::from_uid(Uid::from_raw(uid)),
            None => User::from_name("nobody"),
        };
        let name = caller.map_or_else(|| "nobody".to_owned(), |uid| format!("with the id {uid} (SUDO_UID)"));
        match found {
            Ok(Some(user)) => Ok(Self::Other(ServerUser { uid: user.uid.as_raw(), gid: user.gid.as_raw() })),
            Ok(None) => Err(Error::NoServerUser(format!("there is no user {name}"))),
            Err(errno) => Err(Error::NoServerUser(format!("the user {name} cannot be looked up: {errno}"))),
        }
    }

    pub fn other(self) -> Option<ServerUser> {
        match self {
            Self::Ourselves => None,
            Self::Other(user) => Some(user),
        }
    }
}

impl ServerUser {
    pub fn user_id(self) -> Uid {
        Uid::from_raw(self.uid)
    }

    pub fn group_id(self) -> Gid {
        Gid::from_raw(self.gid)
    }
}
