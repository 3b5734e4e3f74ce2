//! The tables that workloads use: their definitions, their rows, and how they are loaded.

pub(crate) mod loading;
pub(crate) mod pgbench;
pub(crate) mod progress;
pub(crate) mod rows;
pub(crate) mod sysbench;
pub(crate) mod tables;
