//! How much of its rows a server's buffers hold.

use crate::cell::Cell;
use crate::factor::{Dataset, Engine, Scale};
use crate::settings::Settings;

/// One of pgbench's branches with its indexes, as `PostgreSQL` keeps it; the others differ by little.
const PGBENCH_BRANCH_BYTES: f64 = 15_860_000.0;
/// One of sysbench's rows with both of its indexes.
const SYSBENCH_ROW_BYTES: f64 = 240.0;

impl Cell {
    /// Its tables ÷ the buffers that the settings ask for: an estimate by the number of rows. Absent where nothing was asked
    /// for, of workloads without tables, and of a server at a URL, whose settings are its own.
    pub fn data_to_cache(&self, settings: &Settings) -> Option<f64> {
        let server = &self.treatment.server;
        let engine = server.engine;
        if server.url.is_some() {
            return None;
        }
        let data = data_bytes(self.workload.dataset(engine)?, self.scale)?;
        Some(data / settings.buffers_bytes(engine)?)
    }
}

fn data_bytes(dataset: Dataset, scale: Scale) -> Option<f64> {
    match dataset {
        Dataset::Pgbench => Some(f64::from(scale.branches()) * PGBENCH_BRANCH_BYTES),
        Dataset::Sysbench => Some(f64::from(scale.rows()) * SYSBENCH_ROW_BYTES),
        Dataset::Ycsb => None,
    }
}

impl Settings {
    /// The size of the buffers for rows that servers of `engine` are asked to have; absent where nothing that can be read
    /// was asked for.
    fn buffers_bytes(&self, engine: Engine) -> Option<f64> {
        let (name, of_a_bare_number) = match engine {
            Engine::Postgres => ("shared_buffers", 8192.0),
            Engine::MariaDb | Engine::MySql => ("innodb_buffer_pool_size", 1.0),
            Engine::MongoDb | Engine::FerretDb => return None,
        };
        bytes(self.of(engine).get(name)?, of_a_bare_number)
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
        // 10 branches of 15.86 MB in 32 MiB, and 1,000,000 rows of 240 bytes in as many, by hand.
        let large = found("postgres", "select-only", "1000000", &["postgres.shared_buffers=32MB"]).unwrap();
        assert!((large - 4.726_648).abs() < 1e-6, "{large}");
        let set = ["mariadb.innodb_buffer_pool_size=32M"];
        let large = found("mariadb", "point-select", "1000000", &set).unwrap();
        assert!((large - 7.152_557).abs() < 1e-6, "{large}");
    }

    #[test]
    fn nothing_is_known_of_what_was_not_asked_for() {
        assert_eq!(found("postgres", "select-only", "1000000", &[]), None);
        assert_eq!(found("postgres", "select-only", "1000000", &["postgres.work_mem=32MB"]), None);
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
