//! Maintenance between trials, so that no trial pays for the changes of the one before.

use super::Server;
use crate::error::Error;

impl Server {
    /// Writes out changed pages, which the server would otherwise do during a measurement.
    pub fn write_out(&self) -> Result<(), Error> {
        self.engine.write_out(&self.control, &self.tables)
    }

    /// Removes dead rows and index bloat (PostgreSQL) and pgbench's history (all SQL engines), as pgbench does at its start.
    pub fn refresh(&self) -> Result<(), Error> {
        self.engine.refresh(&self.control, &self.tables)
    }
}
