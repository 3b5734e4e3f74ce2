//! The size of tables, how much of them a server's buffers hold, and the number of rows for a relative scale.

use crate::cell::Cell;
use crate::factor::{Dataset, Engine, RelativeScale, Scale, ScaleBase};
use crate::settings::Settings;

/// Tables above this share of the buffers are not always found there: servers keep some buffers free for new pages
/// and use others themselves.
pub const SURELY_CACHED: f64 = 0.75;

/// A buffer setting: its name, its default, and the unit of a bare number.
struct Buffers {
    setting: &'static str,
    default: &'static str,
    bare_number_bytes: f64,
}

/// The setting for `engine`'s row buffers, and its default for private servers; `None` if the engine has no such
/// setting.
pub fn default_buffers(engine: Engine) -> Option<(&'static str, &'static str)> {
    buffers(engine).map(|buffers| (buffers.setting, buffers.default))
}

fn buffers(engine: Engine) -> Option<Buffers> {
    match engine {
        Engine::Postgres => {
            Some(Buffers { setting: "shared_buffers", default: "128MB", bare_number_bytes: 8192.0 })
        }
        Engine::MariaDb | Engine::MySql => {
            Some(Buffers { setting: "innodb_buffer_pool_size", default: "128M", bare_number_bytes: 1.0 })
        }
        Engine::MongoDb | Engine::FerretDb => None,
    }
}

/// Bytes per row of the largest table, including indexes and the other tables' share, measured on freshly loaded
/// tables; `None` if not measured.
fn bytes_per_row(engine: Engine, dataset: Dataset) -> Option<f64> {
    match (engine, dataset) {
        (Engine::Postgres, Dataset::Sysbench) => Some(263.7),
        (Engine::MariaDb | Engine::MySql, Dataset::Sysbench) => Some(241.5),
        (Engine::Postgres, Dataset::Pgbench) => Some(156.8),
        (Engine::MariaDb | Engine::MySql, Dataset::Pgbench) => Some(127.1),
        (Engine::MongoDb | Engine::FerretDb, _) | (_, Dataset::Ycsb) => None,
    }
}

/// Estimated size of the tables of `dataset` on `engine`; `None` if unknown.
pub fn tables_bytes(engine: Engine, dataset: Dataset, scale: Scale) -> Option<f64> {
    let rows = match dataset {
        Dataset::Pgbench => scale.in_whole_branches(),
        Dataset::Sysbench | Dataset::Ycsb => scale,
    };
    Some(f64::from(rows.rows()) * bytes_per_row(engine, dataset)?)
}

impl Cell {
    /// Estimated size of its tables; `None` if there are none or it is unknown.
    pub fn tables_bytes(&self) -> Option<f64> {
        let engine = self.treatment.server.engine;
        tables_bytes(engine, self.workload.dataset(engine)?, self.scale)
    }

    /// Size of its server's row buffers, configured or default; `None` if the setting cannot be parsed, and for
    /// servers at a URL, whose settings are unknown.
    pub fn buffers_bytes(&self, settings: &Settings) -> Option<f64> {
        let server = &self.treatment.server;
        if server.url.is_some() { None } else { settings.buffers_bytes(server.engine) }
    }

    /// Its tables ÷ its server's buffers, estimated from the number of rows; `None` if either is unknown.
    pub fn data_to_cache(&self, settings: &Settings) -> Option<f64> {
        Some(self.tables_bytes()? / self.buffers_bytes(settings)?)
    }

    /// Whether all rows should be found in the buffers. True unless the user configured something else: a scale
    /// relative to the buffers, or buffers smaller than the tables.
    pub fn is_meant_to_be_cached(&self, settings: &Settings) -> bool {
        let Some(data_to_cache) = self.data_to_cache(settings) else { return self.relative.is_none() };
        match self.relative {
            Some(_) => data_to_cache <= SURELY_CACHED,
            None => data_to_cache <= 1.0 || !settings.have_buffers(self.treatment.server.engine),
        }
    }

    /// Replaces a relative scale by the number of rows on the cell's server; the error says why that is impossible.
    pub(crate) fn scaled(self, settings: &Settings, memory_bytes: Option<u64>) -> Result<Self, String> {
        let Some(relative) = self.relative else { return Ok(self) };
        let server = &self.treatment.server;
        let in_rows = "give its scale in rows";
        if server.url.is_some() {
            return Err(format!("the memory and buffers of {} are unknown: {in_rows}", server.short_name()));
        }
        let engine = server.engine;
        let Some(dataset) = self.workload.dataset(engine) else {
            return Err(format!("{} reads no tables, so {relative} is no number of rows", self.workload));
        };
        let Some(row_bytes) = bytes_per_row(engine, dataset) else {
            return Err(format!("the size of a row in {} is unknown: {in_rows}", engine.display_name()));
        };
        let whole_bytes = match relative.whole() {
            ScaleBase::Cache => settings.buffers_bytes(engine).ok_or_else(|| {
                let setting = buffers(engine).map_or("", |buffers| buffers.setting);
                format!("cannot parse the size in {engine}.{setting}: {in_rows}")
            })?,
            ScaleBase::Memory => memory_bytes.ok_or("the size of the memory is unknown")? as f64,
        };
        let scale = rows(dataset, relative.times() * whole_bytes / row_bytes).ok_or_else(|| {
            format!("{relative} is more than the maximum of {} rows: {in_rows}", Scale::MAX)
        })?;
        Ok(Self { scale, ..self })
    }
}

/// The nearest number of rows that `dataset` can have.
fn rows(dataset: Dataset, rows: f64) -> Option<Scale> {
    let each = match dataset {
        Dataset::Pgbench => f64::from(Scale::ROWS_PER_BRANCH),
        Dataset::Sysbench | Dataset::Ycsb => 1.0,
    };
    let rows = (rows / each).round().max(1.0) * each;
    if rows > f64::from(Scale::MAX) { None } else { Scale::new(rows as u32) }
}

impl RelativeScale {
    /// `0.5cache` in a sentence: `0.5 × the buffers`.
    pub fn in_words(self) -> String {
        let times = self.to_string();
        let label = self.whole().label();
        let what = match self.whole() {
            ScaleBase::Cache => "the buffers",
            ScaleBase::Memory => "the memory",
        };
        format!("{} × {what}", times.trim_end_matches(label))
    }
}

impl Settings {
    /// Whether they configure `engine`'s buffers.
    fn have_buffers(&self, engine: Engine) -> bool {
        buffers(engine).is_some_and(|buffers| self.of(engine).contains_key(buffers.setting))
    }

    /// The size of the row buffers of private servers of `engine`; `None` if it cannot be parsed.
    pub fn buffers_bytes(&self, engine: Engine) -> Option<f64> {
        let Buffers { setting, default, bare_number_bytes } = buffers(engine)?;
        let settings = self.of(engine);
        bytes(settings.get(setting).map_or(default, String::as_str), bare_number_bytes)
    }
}

/// Accepts `256MB` and `256M`, as each engine takes one of them. A bare number counts pages or bytes.
fn bytes(text: &str, of_a_bare_number: f64) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let each = match unit.trim().to_ascii_uppercase().trim_end_matches('B') {
        "" if unit.is_empty() => of_a_bare_number,
        "" => 1.0,
        "K" => 1024.0,
        "M" => 1024.0 * 1024.0,
        "G" => 1024.0 * 1024.0 * 1024.0,
        "T" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
    Some(f64::from(number) * each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::spec::{Grid, Spec};

    fn found(server: &str, workload: &str, rows: &str, set: &[&str]) -> Option<f64> {
        let mut settings = Settings::default();
        settings.extend(set.iter().map(|setting| setting.parse().unwrap()));
        let grid = Grid {
            server: vec![server.parse().unwrap()],
            workload: vec![workload.parse().unwrap()],
            scale: vec![rows.parse().unwrap()],
            ..Grid::default()
        };
        let plan = Plan::new(&Spec { grids: vec![grid], ..Spec::quick(&[]) }, 1).unwrap();
        plan.cells[0].data_to_cache(&settings)
    }

    #[test]
    fn rows_are_compared_with_the_configured_buffers() {
        // By hand: 10 branches of 15.68 MB, and 1,000,000 rows of 241.5 bytes, in 32 MiB each.
        let large = found("postgres", "select-only", "1000000", &["postgres.shared_buffers=32MB"]).unwrap();
        assert!((large - 4.673_004).abs() < 1e-6, "{large}");
        let set = ["mariadb.innodb_buffer_pool_size=32M"];
        let large = found("mariadb", "point-select", "1000000", &set).unwrap();
        assert!((large - 7.197_261).abs() < 1e-6, "{large}");
    }

    #[test]
    fn the_lab_has_default_buffers() {
        let set = found("postgres", "select-only", "1000000", &["postgres.shared_buffers=128MB"]);
        assert_eq!(found("postgres", "select-only", "1000000", &["postgres.work_mem=32MB"]), set);
        assert_eq!(found("postgres", "connect", "1000", &["postgres.shared_buffers=32MB"]), None);
    }

    #[test]
    fn sizes_are_read_as_the_servers_read_them() {
        let read = |text| bytes(text, 8192.0);
        assert_eq!(
            (read("4096"), read("64kB"), read("32 MB")),
            (Some(33_554_432.0), Some(65_536.0), read("4096"))
        );
        assert_eq!((read("1G"), read("512B")), (read("1024MB"), Some(512.0)));
        assert_eq!([read(""), read("MB"), read("0"), read("1.5GB"), read("1 parsec"), read("-1")], [None; 6]);
    }
}
