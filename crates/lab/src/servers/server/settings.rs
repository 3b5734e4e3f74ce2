//! Settings that did not take effect, and the server's counters.

use std::collections::BTreeMap;

use super::Server;
use crate::error::Error;
use crate::servers::counters::Counters;
use crate::servers::engine::UnmetSetting;

impl Server {
    /// A sentence for each requested setting that did not take effect.
    pub fn unmet_settings(&self) -> &[String] {
        &self.unmet_settings
    }

    pub(super) fn compare_settings(
        &self,
        requested: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, Error> {
        if requested.is_empty() {
            return Ok(Vec::new());
        }
        let unmet = self.engine.unmet_settings(&self.control, requested)?;
        let sentence = |UnmetSetting { name, value }: UnmetSetting| {
            let (setting, server) = (format!("{}.{name}", self.engine()), self.build.name());
            match value {
                Some(value) => format!(
                    "{setting}={} did not take effect: {server} has {value:?}",
                    requested.get(&name).map_or("", String::as_str),
                ),
                None => format!("{setting} took no effect: {server} has no such variable"),
            }
        };
        Ok(unmet.into_iter().map(sentence).collect())
    }

    /// Reads the counters of pages, log and checkpoints. On PostgreSQL, it waits for closed connections, because they publish
    /// their counters when they end.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.engine.counters(&self.control)
    }
}
