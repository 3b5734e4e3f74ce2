//! The prepared statements of a client, and of a server connection.

use std::sync::Arc;

use foldhash::{HashMap, HashSet};

use crate::postgres::sql::effects::{Deallocated, Effects};

/// The statements that a client has prepared and may use on any connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientStatements {
    pub(super) by_name: HashMap<Vec<u8>, Arc<ClientStatement>>,
    pub(super) bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientStatement {
    /// The complete `Parse`.
    pub(super) message: Vec<u8>,
    pub(super) effects: Effects,
}

/// The names of the statements prepared on a server connection.
#[derive(Debug, Default)]
pub struct ConnectionStatements(pub(super) HashSet<Vec<u8>>);

impl ConnectionStatements {
    /// Call it when the connection was reset.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The proxy has replaced the unnamed statement.
    pub fn forget_unnamed(&mut self) {
        self.remove(b"");
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        // Usually there is none, and the name need not be hashed.
        if !self.0.is_empty() {
            self.0.remove(name);
        }
    }
}

impl ClientStatements {
    /// The memory that all of them take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if !self.by_name.is_empty()
            && let Some(statement) = self.by_name.remove(name)
        {
            self.bytes -= statement.message.len();
        }
    }

    pub(super) fn insert(&mut self, name: Vec<u8>, statement: ClientStatement) {
        self.bytes += statement.message.len();
        if let Some(old) = self.by_name.insert(name, Arc::new(statement)) {
            self.bytes -= old.message.len();
        }
    }

    pub(super) fn deallocate(&mut self, deallocated: &Deallocated, prepared: &mut ConnectionStatements) {
        match deallocated {
            Deallocated::None => {}
            Deallocated::Named(names) => {
                for name in names {
                    self.remove(name);
                    prepared.remove(name);
                }
            }
            Deallocated::All => {
                *self = Self::default();
                prepared.clear();
            }
        }
    }
}
