//! The arguments of `schema`.

use clap::{Args, ValueEnum};

#[derive(Args, Debug)]
pub(crate) struct SchemaArguments {
    /// The document
    #[arg(value_enum, default_value_t = SchemaDocument::Report)]
    pub(crate) document: SchemaDocument,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaDocument {
    /// Of `run --json` and `report --format json`
    Report,
    /// Of `observe --format json`
    Observation,
}
