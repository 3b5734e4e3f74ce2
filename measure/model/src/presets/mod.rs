//! Published studies: the run that repeats each study, and its figures.
//!
//! The figures are a reference, never a target for tuning or an input of a measurement. Ratios are compared, because the
//! machines differ.

mod calibrate;
mod mongodb_tls_2024;
mod mysql_tls_2013;
mod mysql_tunnel_2013;
mod mysql_wan_2013;
mod post_quantum;
mod postgres_tde_2021;
mod preset;
mod proxysql_2017;
mod table;
mod wan_modern;

pub use preset::{Measures, Preset, Published};

/// Every study that can be repeated here.
pub const PRESETS: &[Preset] = &[
    calibrate::PRESET,
    mysql_tls_2013::PRESET,
    mysql_tunnel_2013::PRESET,
    mysql_wan_2013::PRESET,
    proxysql_2017::PRESET,
    mongodb_tls_2024::PRESET,
    postgres_tde_2021::PRESET,
    wan_modern::PRESET,
    post_quantum::PRESET,
];

/// The study called `name`.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
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
            ("proxysql-2017", 4, 0, "tls1.2-rsa2048", 0.255_462),
            ("proxysql-2017", 4, 2, "proxysql", 7.315_299),
            ("proxysql-2017", 4, 3, "proxy", 7.315_299),
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
}
