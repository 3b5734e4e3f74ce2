//! What `ciphertoll observe` saw, as sections that the page and the Markdown share, and as CSV. An optional figure of a
//! pair is one row in `pairs::FIGURES`, and one column in `csv`; a figure that no pair has is not shown.

mod csv;
mod markdown;
pub(crate) mod pairs;
pub(crate) mod sections;
pub(crate) mod words;

pub use csv::observation_csv;
pub use markdown::observation_markdown;
