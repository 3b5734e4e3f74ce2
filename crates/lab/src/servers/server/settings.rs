//! Whether a server has the settings that it was started with.

use std::collections::BTreeMap;

use ciphertoll_model::Engine;

use super::{Server, Unmet};
use crate::error::Error;
use crate::{mariadb, mysql, postgres};

impl Server {
    /// A sentence for each setting that was asked for and did not take effect.
    pub fn unmet_settings(&self) -> &[String] {
        &self.unmet_settings
    }

    pub(super) fn compare_settings(&self, asked: &BTreeMap<String, String>) -> Result<Vec<String>, Error> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let unmet = match self.engine {
            Engine::MariaDb => mariadb::unmet_settings(&self.control, asked)?,
            Engine::MySql => mysql::unmet_settings(&self.control, asked)?,
            Engine::Postgres => postgres::unmet_settings(&self.control, asked)?,
            // Nothing of them can be set.
            Engine::MongoDb | Engine::FerretDb => Vec::new(),
        };
        let sentence = |Unmet { name, value }: Unmet| {
            let setting = format!("{}.{name}", self.engine);
            match value {
                Some(value) => format!(
                    "{setting}={} did not take effect: {} has {value:?}",
                    asked.get(&name).map_or("", String::as_str),
                    self.name()
                ),
                None => format!("{setting} took no effect: {} has no such variable", self.name()),
            }
        };
        Ok(unmet.into_iter().map(sentence).collect())
    }
}
