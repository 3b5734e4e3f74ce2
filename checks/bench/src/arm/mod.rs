//! Load generators: ciphertoll's own, pgbench, sysbench, go-ycsb, pymongo, or a C loop. Each run returns throughput,
//! latency and CPU time per operation.

pub(crate) mod go_ycsb;
mod kinds;
mod native;
pub(crate) mod peer;
pub(crate) mod pgbench;
pub(crate) mod sysbench;
pub(crate) mod tool;

use anyhow::Result;

pub use kinds::{BenchArm, FloorMode, Generator, OperationKind, Route, Sample, Tools};
pub use native::{WindowEvent, trial};

use crate::setup::BenchSetup;

impl BenchArm {
    pub fn run(&self, setup: &BenchSetup<'_>) -> Result<Sample> {
        match self.generator {
            Generator::Native | Generator::Pymongo => native::run(self, setup),
            Generator::Libmariadb => peer::connect_loop(self, setup),
            Generator::Floor(mode) => peer::floor(self, setup, mode),
            Generator::Pgbench => pgbench::run(self, setup),
            Generator::Sysbench => sysbench::run(self, setup),
            Generator::GoYcsb => go_ycsb::run(self, setup),
        }
    }
}
