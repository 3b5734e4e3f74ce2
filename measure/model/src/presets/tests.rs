use crate::{Engine, Plan, Size, Skipped};

use super::*;

#[test]
fn ratios_are_those_computed_by_hand() {
    // Name of the study and number of its figures; place, path and ratio of one of them.
    for (name, count, place, path, ratio) in [
        // 3 keys; 6 numbers of threads, in rate and time. 28.183 ÷ 2701.75.
        ("mysql-tls-2013", 39, 1, "tls1.2-rsa2048+suite=DHE-RSA-AES256-SHA", 0.010_431_4),
        // 482.02 ÷ 1001.33.
        ("mysql-tunnel-2013", 3, 2, "ssh-aes256-ctr", 0.481_38),
        // 3 builds, 3 keys, 2 links. 100 ÷ (100 − 34.39).
        ("mysql-wan-2013", 18, 0, "tls1.2-rsa1024+suite=DHE-RSA-AES256-SHA", 1.524_158),
        // 20.417 ÷ 79.922 and 20.417 ÷ 2.791.
        ("proxysql-2017", 8, 0, "tls1.2-rsa2048", 0.255_462),
        // (29.933 + 9.55) ÷ (0.201 + 3.396).
        ("proxysql-2017", 8, 1, "tls1.2-rsa2048", 10.976_647),
        ("proxysql-2017", 8, 4, "proxysql", 7.315_299),
        ("proxysql-2017", 8, 5, "proxy", 7.315_299),
        // 19.8515 ÷ 3.7009, 43.5884 ÷ 20.7456, 63.4399 ÷ 24.4465 and 0.7643 ÷ 0.7506.
        ("mongodb-tls-2024", 4, 0, "tls1.3-p256", 5.363_966),
        ("mongodb-tls-2024", 4, 1, "tls1.3-p256", 2.101_092),
        ("mongodb-tls-2024", 4, 2, "tls1.3-p256", 2.595_050),
        ("mongodb-tls-2024", 4, 3, "tls1.3-p256", 1.018_252),
    ] {
        let published = find(name).unwrap().published();
        let found = &published[place];
        assert_eq!((published.len(), found.path.to_string().as_str()), (count, path), "{name}");
        assert!((found.ratio - ratio).abs() < 1e-5, "{name}: {found:?}");
        let has_sd = matches!(name, "mysql-tls-2013" | "mysql-tunnel-2013");
        assert_eq!(found.ratio_sd.is_some_and(|sd| sd > 0.0), has_sd, "{name}");
    }
}

#[test]
fn every_figure_has_a_cell_of_the_full_run() {
    for preset in PRESETS {
        let spec = preset.spec(&preset.servers(), Size::Full);
        let plan = Plan::new(&spec, 1).unwrap();
        for published in preset.published() {
            let measured = plan.cells.iter().any(|cell| {
                published.has_equal(cell, &plan.settings) && preset.is_of(cell.treatment.server.engine)
            });
            assert!(measured, "{}: {published:?}", preset.name);
        }
    }
}

#[test]
fn every_value_of_the_tables_is_printed_once_or_explained() {
    // Rows of the tables, and their values: means and deviations, seconds, and percentages.
    for (name, tables, rows, values) in [
        ("mysql-tls-2013", [POOLED_2013, CONNECTS_2013], 52, 104),
        ("mysql-tunnel-2013", [TUNNEL_2013, ""], 4, 8),
        ("mysql-wan-2013", [WAN_2013, ""], 18, 18),
        ("proxysql-2017", [PROXYSQL_2017, ""], 10, 12),
        ("mongodb-tls-2024", [MONGODB_2024, ""], 8, 8),
        ("postgres-tde-2021", [TDE_2021, ""], 300, 300),
    ] {
        let numbers = find(name).unwrap().numbers();
        assert_eq!(numbers.len(), rows, "{name}");
        let printed: Vec<&str> = numbers.iter().flat_map(|number| number.printed.split(' ')).collect();
        let in_tables: Vec<&str> = tables.into_iter().flat_map(values_of).collect();
        assert_eq!(in_tables.len(), values, "{name}");
        let missing: Vec<&&str> = in_tables.iter().filter(|value| !printed.contains(value)).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
        let has_reason =
            |number: &PublishedNumber| number.unlike.map_or(number.place.is_some(), |why| !why.is_empty());
        assert!(numbers.iter().all(has_reason), "{name}: each is compared or has a reason");
    }
}

const POOLED_2013: &str = include_str!("../../data/mysql-tls-2013-pooled.csv");
const CONNECTS_2013: &str = include_str!("../../data/mysql-tls-2013-connect.csv");
const TUNNEL_2013: &str = include_str!("../../data/mysql-tunnel-2013-connect.csv");
const WAN_2013: &str = include_str!("../../data/mysql-wan-2013-connect-loss.csv");
const PROXYSQL_2017: &str = include_str!("../../data/proxysql-2017-connect.csv");
const MONGODB_2024: &str = include_str!("../../data/mongodb-tls-2024.csv");
const TDE_2021: &str = include_str!("../../data/postgres-tde-2021.csv");

/// The measured values of a table, without the columns that name a row.
fn values_of(table: &'static str) -> Vec<&'static str> {
    let mut lines = table.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let columns = lines.next().unwrap_or_default();
    let is_value = |name: &&str| {
        let ends = ["_mean", "_sd", "_s", "_ms", "_percent"].iter().any(|end| name.ends_with(end));
        (ends && *name != "rtt_avg_ms") || *name == "tps"
    };
    let of_line = |values: Vec<&'static str>| {
        let pairs = columns.iter().zip(values).filter(|(name, _)| is_value(name));
        pairs.map(|(_, value)| value).collect::<Vec<_>>()
    };
    lines.flat_map(of_line).collect()
}

#[test]
fn a_study_is_told_in_five_sentences_and_has_conclusions() {
    for preset in PRESETS {
        let Some(study) = &preset.study else { continue };
        assert!(study.sentences.iter().all(|sentence| !sentence.is_empty() && !sentence.ends_with('.')));
        assert!(study.conclusions.len() >= 3, "{}", preset.name);
    }
    assert_eq!(PRESETS.iter().filter(|preset| preset.study.is_some()).count(), 6);
}

#[test]
fn figures_apply_to_the_published_engines() {
    let preset = find("proxysql-2017").unwrap();
    assert!(preset.is_of(Engine::MySql) && preset.is_of(Engine::MariaDb));
    assert!(!preset.is_of(Engine::Postgres) && !preset.is_of(Engine::FerretDb));
}

#[test]
fn every_size_can_be_planned_on_every_server_it_is_for() {
    for preset in PRESETS {
        assert_eq!(preset.servers().len(), preset.servers.len(), "each is a level");
        for size in [Size::Smoke, Size::Small, Size::Standard, Size::Full] {
            let plan = Plan::new(&preset.spec(&preset.servers(), size), 1).unwrap();
            assert_eq!((plan.name.as_str(), plan.servers().len()), (preset.name, preset.servers.len()));
            // MySQL has no post-quantum TLS, which is a result.
            let of_mysql = |skipped: &Skipped| skipped.id.starts_with("mysql-9.7/");
            assert!(plan.skipped.iter().all(of_mysql), "{:?}", plan.skipped);
        }
    }
}

/// What an audit found missing or wrong in these texts.
#[test]
fn a_preset_says_what_its_study_says() {
    for (name, words) in [
        ("mysql-tls-2013", "not a finding of the study"),
        ("mysql-tls-2013", "25 %"),
        ("mysql-tls-2013", "8 threads"),
        ("mysql-tls-2013", "pool of 4 GB"),
        ("mysql-tls-2013", "10 minutes"),
        ("mongodb-tls-2024", "readPreference=secondary"),
        ("mongodb-tls-2024", "tlsAllowInvalidHostnames"),
        ("mongodb-tls-2024", "read-only node"),
        ("mongodb-tls-2024", "2 cores and 4 GB"),
        ("postgres-tde-2021", "64 GB"),
        ("postgres-tde-2021", "pg_stat_statements"),
        ("postgres-tde-2021", "TRIM"),
        ("postgres-tde-2021", "1600"),
        ("proxysql-2017", "400 %"),
        ("proxysql-2017", "single point of failure"),
        ("mysql-wan-2013", "Oregon"),
        ("mysql-wan-2013", "spread"),
        ("mysql-wan-2013", "4096"),
    ] {
        let preset = find(name).unwrap();
        let study = preset.study.as_ref().unwrap();
        let conclusions = study.conclusions.iter().map(|conclusion| conclusion.said);
        let texts = study.sentences.iter().chain(preset.deviations).chain(preset.explanation).copied();
        let all: Vec<&str> = texts.chain(conclusions).collect();
        assert!(all.iter().any(|text| text.contains(words)), "{name}: {words}");
    }
}
