//! What is put in order between trials, so that none pays for what the one before has left.

use ciphertoll_model::Engine;

use super::Server;
use crate::error::Error;
use crate::{mysql_family, postgres};

impl Server {
    /// Writes out what trials have changed in its tables: else the server does that in the background, while something is
    /// measured.
    pub fn write_out(&self) -> Result<(), Error> {
        match self.engine {
            Engine::MariaDb | Engine::MySql => mysql_family::write_out(&self.control, &self.tables),
            Engine::Postgres => postgres::write_out(&self.control),
            // They write all the time, or leave it to the system.
            Engine::MongoDb | Engine::FerretDb => Ok(()),
        }
    }

    /// Takes back what writing does to tables in the long run, as pgbench does before it begins: rows that are dead and
    /// indexes that have grown (`PostgreSQL`), pgbench's history (all).
    pub fn refresh(&self) -> Result<(), Error> {
        match self.engine {
            Engine::MariaDb | Engine::MySql => mysql_family::refresh(&self.control, &self.tables),
            Engine::Postgres => postgres::refresh(&self.control, &self.tables),
            Engine::MongoDb | Engine::FerretDb => Ok(()),
        }
    }
}
