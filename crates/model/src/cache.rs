//! How large tables are, how much of them a server's buffers hold, and how many rows it takes for a relative scale.

use crate::cell::Cell;
use crate::factor::{Dataset, Engine, RelativeScale, Scale, Whole};
use crate::settings::Settings;

/// Tables larger than this share of the buffers are read from outside of them now and then: servers keep some buffers free
/// for what comes, and need others for themselves.
pub const SURELY_CACHED: f64 = 0.75;

/// A setting, its value where nobody says another, and the bytes that a bare number counts.
struct Buffers {
    setting: &'static str,
    default: &'static str,
    bare_number_bytes: f64,
}

/// The setting of `engine`'s buffers for rows, and the value of it that private servers are started with where nobody says
/// another; none where it has none that is ours to choose.
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

/// What `engine` needs for a row of the largest table, with its indexes and its part of the other tables; as measured on
/// tables that were just loaded. None where nobody has measured it.
fn bytes_per_row(engine: Engine, dataset: Dataset) -> Option<f64> {
    match (engine, dataset) {
        (Engine::Postgres, Dataset::Sysbench) => Some(263.7),
        (Engine::MariaDb | Engine::MySql, Dataset::Sysbench) => Some(241.5),
        (Engine::Postgres, Dataset::Pgbench) => Some(156.8),
        (Engine::MariaDb | Engine::MySql, Dataset::Pgbench) => Some(127.1),
        (Engine::MongoDb | Engine::FerretDb, _) | (_, Dataset::Ycsb) => None,
    }
}

/// About how large the tables of `dataset` are on `engine`; none where that is not known.
pub fn tables_bytes(engine: Engine, dataset: Dataset, scale: Scale) -> Option<f64> {
    let rows = match dataset {
        Dataset::Pgbench => scale.in_whole_branches(),
        Dataset::Sysbench | Dataset::Ycsb => scale,
    };
    Some(f64::from(rows.rows()) * bytes_per_row(engine, dataset)?)
}

impl Cell {
    /// About how large its tables are. Absent where it has none, or nobody knows.
    pub fn tables_bytes(&self) -> Option<f64> {
        let engine = self.treatment.server.engine;
        tables_bytes(engine, self.workload.dataset(engine)?, self.scale)
    }

    /// The buffers for rows of its server, by the settings or as they are by default. Absent where the settings say what
    /// cannot be read, and of a server at a URL, whose settings are its own.
    pub fn buffers_bytes(&self, settings: &Settings) -> Option<f64> {
        let server = &self.treatment.server;
        if server.url.is_some() { None } else { settings.buffers_bytes(server.engine) }
    }

    /// Its tables ÷ its server's buffers: an estimate by the number of rows. Absent where one of them is not known.
    pub fn data_to_cache(&self, settings: &Settings) -> Option<f64> {
        Some(self.tables_bytes()? / self.buffers_bytes(settings)?)
    }

    /// Whether all its rows are meant to be found in the buffers. They are, unless somebody who spoke of the buffers asked
    /// for more: by a scale relative to them, or by their own size.
    pub fn is_meant_to_be_cached(&self, settings: &Settings) -> bool {
        let Some(data_to_cache) = self.data_to_cache(settings) else { return self.relative.is_none() };
        match self.relative {
            Some(_) => data_to_cache <= SURELY_CACHED,
            None => data_to_cache <= 1.0 || !settings.have_buffers(self.treatment.server.engine),
        }
    }

    /// The same with as many rows as its relative scale comes to on its server; where that cannot be said, why.
    pub(crate) fn scaled(self, settings: &Settings, memory_bytes: Option<u64>) -> Result<Self, String> {
        let Some(relative) = self.relative else { return Ok(self) };
        let server = &self.treatment.server;
        let in_rows = "give its scale in rows";
        if server.url.is_some() {
            return Err(format!("{} has memory and buffers of its own: {in_rows}", server.short_name()));
        }
        let engine = server.engine;
        let Some(dataset) = self.workload.dataset(engine) else {
            return Err(format!(
                "{} reads no tables, of which {relative} could be so many rows",
                self.workload
            ));
        };
        let Some(row_bytes) = bytes_per_row(engine, dataset) else {
            return Err(format!("what {} takes for a row is not known: {in_rows}", engine.display_name()));
        };
        let whole_bytes = match relative.whole() {
            Whole::Cache => settings.buffers_bytes(engine).ok_or_else(|| {
                let setting = buffers(engine).map_or("", |buffers| buffers.setting);
                format!("{engine}.{setting} is no size that can be calculated with: {in_rows}")
            })?,
            Whole::Memory => memory_bytes.ok_or("how much memory there is, is not known")? as f64,
        };
        let scale = rows(dataset, relative.times() * whole_bytes / row_bytes).ok_or_else(|| {
            format!("{relative} is more than {} rows, which are the most: {in_rows}", Scale::MAX)
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
    /// `0.5cache` as a sentence has it: `0.5 × the buffers`.
    pub fn in_words(self) -> String {
        let times = self.to_string();
        let label = self.whole().label();
        let what = match self.whole() {
            Whole::Cache => "the buffers",
            Whole::Memory => "the memory",
        };
        format!("{} × {what}", times.trim_end_matches(label))
    }
}

impl Settings {
    /// Whether they say how large the buffers of `engine` are.
    fn have_buffers(&self, engine: Engine) -> bool {
        buffers(engine).is_some_and(|buffers| self.of(engine).contains_key(buffers.setting))
    }

    /// The size of the buffers for rows that private servers of `engine` are started with; absent where it cannot be read.
    pub fn buffers_bytes(&self, engine: Engine) -> Option<f64> {
        let Buffers { setting, default, bare_number_bytes } = buffers(engine)?;
        let settings = self.of(engine);
        bytes(settings.get(setting).map_or(default, String::as_str), bare_number_bytes)
    }
}

/// `256MB` and `256M` alike: each engine takes one of them. A bare number counts pages, or bytes.
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
    fn rows_are_set_beside_the_buffers_that_were_asked_for() {
        // 10 branches of 15.68 MB in 32 MiB, and 1,000,000 rows of 241.5 bytes in as many, by hand.
        let large = found("postgres", "select-only", "1000000", &["postgres.shared_buffers=32MB"]).unwrap();
        assert!((large - 4.673_004).abs() < 1e-6, "{large}");
        let set = ["mariadb.innodb_buffer_pool_size=32M"];
        let large = found("mariadb", "point-select", "1000000", &set).unwrap();
        assert!((large - 7.197_261).abs() < 1e-6, "{large}");
    }

    #[test]
    fn where_nothing_is_said_the_buffers_are_those_of_the_lab() {
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
