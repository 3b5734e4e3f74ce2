//! Which processors clients and servers use.

use serde::{Deserialize, Serialize};

/// Whether clients and servers use separate processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuPinning {
    /// Both use all processors, as on a developer's machine.
    #[default]
    Off,
    /// Each side has half of the processors.
    Auto,
}
