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
mod published;
mod study;
mod table;
mod wan_modern;

pub use preset::{Measures, Preset};
pub use published::Published;
pub use study::{Claim, Conclusion, PublishedNumber, Study, Which};

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
mod tests;
