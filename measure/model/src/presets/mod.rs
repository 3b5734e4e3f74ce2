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
mod proxysql_2017;
mod table;
mod wan_modern;

use crate::{
    AtRest, Cell, Clients, Driver, Engine, Link, Metric, Path, ServerLevel, Settings, Size, Spec, Workload,
};

/// The cached share of the data is the same if the ratios differ by at most this factor: a scale is a whole number, and the
/// study's scales differ by a factor of ten.
const SAME_SHARE: f64 = 1.5;

/// A published study.
#[derive(Debug)]
pub struct Preset {
    pub name: &'static str,
    /// Its question.
    pub about: &'static str,
    /// Publisher and date.
    pub source: &'static str,
    /// Levels of the servers that repeat it, the closest to the published one first.
    servers: &'static [&'static str],
    /// How many of them, if the user names none.
    pub measures: Measures,
    /// Differences between the study and its repetition, one line each.
    pub deviations: &'static [&'static str],
    /// Explanations of the figures, one line each.
    pub explanation: &'static [&'static str],
    spec: fn(&[ServerLevel], Size) -> Spec,
    published: fn() -> Vec<Published>,
}

/// How many of its servers a preset measures if the user names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measures {
    EveryServer,
    /// The first one that is installed.
    OneServer,
}

/// A published ratio to the unencrypted baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    pub workload: Workload,
    pub clients: Clients,
    /// The closest path here.
    pub path: Path,
    /// The published driver, or native if it is not available here.
    pub driver: Driver,
    pub link: Link,
    /// The closest encryption at rest here.
    pub at_rest: AtRest,
    /// Tables ÷ server buffers; absent if the study has no figures by that.
    pub data_to_cache: Option<f64>,
    /// The published build, if several builds are compared with the same cell.
    pub of: Option<&'static str>,
    pub metric: Metric,
    /// Encrypted ÷ plain.
    pub ratio: f64,
    /// Its standard deviation, from those of numerator and denominator; absent if not published.
    pub ratio_sd: Option<f64>,
}

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

impl Preset {
    pub fn servers(&self) -> Vec<ServerLevel> {
        self.servers.iter().filter_map(|level| level.parse().ok()).collect()
    }

    /// Whether its figures apply to `engine`: to engines with the protocol of the published one.
    pub fn is_of(&self, engine: Engine) -> bool {
        self.servers().first().is_some_and(|server| server.engine.shares_protocol(engine))
    }

    /// The specification that repeats it on `servers`.
    pub fn spec(&self, servers: &[ServerLevel], size: Size) -> Spec {
        Spec { name: self.name.to_owned(), size, ..(self.spec)(servers, size) }
    }

    /// Its figures as ratios.
    pub fn published(&self) -> Vec<Published> {
        (self.published)()
    }
}

impl Published {
    /// A ratio of ciphertoll's own client, alone and on a local link, without encryption at rest.
    fn new(workload: Workload, path: Path, metric: Metric, (ratio, ratio_sd): Figure) -> Self {
        Self {
            workload,
            clients: Clients::ONE,
            path,
            driver: Driver::Native,
            link: Link::Local,
            at_rest: AtRest::None,
            data_to_cache: None,
            of: None,
            metric,
            ratio,
            ratio_sd,
        }
    }

    /// Whether `cell` corresponds to it on a server with `settings`, whatever the engine.
    pub fn has_equal(&self, cell: &Cell, settings: &Settings) -> bool {
        let treatment = &cell.treatment;
        let is_same_share = |then: f64| {
            cell.data_to_cache(settings).is_some_and(|here| (here / then).ln().abs() <= SAME_SHARE.ln())
        };
        (self.workload, self.clients) == (cell.workload, cell.clients)
            && (self.path, &self.driver) == (treatment.path, &treatment.driver)
            && (self.link, self.at_rest) == (treatment.link, treatment.at_rest)
            && self.data_to_cache.is_none_or(is_same_share)
    }
}

/// A published mean and its standard deviation.
type Figure = (f64, Option<f64>);

/// Mean and standard deviation of `a ÷ b` to first order, if both are independent.
fn ratio(a: Figure, b: Figure) -> Figure {
    let mean = a.0 / b.0;
    let relative = |(mean, sd): Figure| sd.map(|sd| sd / mean);
    let sd = relative(a).zip(relative(b)).map(|(a, b)| mean * a.hypot(b));
    (mean, sd)
}

/// The closest path to MySQL's TLS in 2013.
fn tls_of_2013(rsa_bits: &str) -> Option<Path> {
    format!("tls1.2-rsa{rsa_bits}+suite=DHE-RSA-AES256-SHA").parse().ok()
}

#[cfg(test)]
mod tests {
    use crate::{Plan, Skipped};

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
    fn ratios_carry_both_deviations() {
        let (mean, sd) = ratio((50.0, Some(3.0)), (100.0, Some(8.0)));
        assert!((mean - 0.5).abs() < 1e-12 && (sd.unwrap() - 0.05).abs() < 1e-12);
        assert_eq!(ratio((1.0, None), (2.0, Some(1.0))), (0.5, None));
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
