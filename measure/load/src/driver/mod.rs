//! Drivers: the client code that makes the load. A driver is a TOML file that names either a program that speaks the
//! protocol of `__load`, or a tool, how to run it, and how to read its output. `docs/measure/drivers.md` is the user's page.

mod adapter;
mod build;
mod builtin;
mod error;
mod file;
mod find;
mod output;
mod placeholder;
mod possible;
mod python;
mod tool;

pub use adapter::{DRIVE_COMMAND, run_drive_process};
pub use build::PreparedDriver;
pub use error::Error;
pub use file::{DriverFile, PathKind};
pub use find::{Driver, ListedDriver, Origin, available, find, unlike};
pub use possible::DriverRequirements;
pub use tool::Task;
