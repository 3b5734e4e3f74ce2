//! The server that a client wants among several.

use crate::labelled::{labelled, labelled_enum};

labelled_enum! {
    /// `target_session_attrs` of libpq.
    #[derive(Default)]
    TargetSession: "target_session_attrs" {
        #[default]
        Any = "any",
        /// Transactions may write.
        ReadWrite = "read-write",
        ReadOnly = "read-only",
        /// Not in recovery.
        Primary = "primary",
        Standby = "standby",
        /// If no host is a standby, any.
        PreferStandby = "prefer-standby",
    }
}
