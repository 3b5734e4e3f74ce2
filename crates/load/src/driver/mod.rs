//! Drivers: whose client code makes the load. Each is a file in TOML that names a program which speaks the
//! protocol of `__load`, or a tool and how to run it and read what it prints. `docs/drivers.md` is the
//! user's page.

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
pub use build::Ready;
pub use error::Error;
pub use file::{DriverFile, PathKind};
pub use find::{Driver, Listed, Origin, available, find, unlike};
pub use possible::Facts;
pub use tool::Task;
