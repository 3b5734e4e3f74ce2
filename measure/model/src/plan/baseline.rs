//! The level of one factor that everything is compared with.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::factor::{AtRest, Auth, Ctx, Driver, Factor, LevelError, Path, ServerLevel};

/// The level of one factor that everything is compared with. Printed as `FACTOR=LEVEL`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "factor", content = "level", rename_all = "snake_case")]
pub enum Baseline {
    Path(Path),
    Server(ServerLevel),
    Auth(Auth),
    Ctx(Ctx),
    Driver(Driver),
    AtRest(AtRest),
}

/// The text is not a baseline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    #[error(
        "baseline \"{0}\" is not FACTOR=LEVEL, with FACTOR one of server, path, auth, ctx, driver, at-rest"
    )]
    Shape(String),
    #[error("baseline: {0}")]
    Level(#[from] LevelError),
}

impl Baseline {
    /// The compared factor.
    pub fn factor(&self) -> Factor {
        match self {
            Self::Path(_) => Factor::Path,
            Self::Server(_) => Factor::Server,
            Self::Auth(_) => Factor::Auth,
            Self::Ctx(_) => Factor::Ctx,
            Self::Driver(_) => Factor::Driver,
            Self::AtRest(_) => Factor::AtRest,
        }
    }

    /// Whether `cell` is its own counterpart. A cell without a TLS context has no level of that factor.
    pub(crate) fn is_level_of(&self, cell: &Cell) -> bool {
        let applies = self.factor() != Factor::Ctx || cell.treatment.ctx.is_some();
        applies && self.counterpart(cell) == *cell
    }

    /// The cell that `cell` is compared with; itself if it has the baseline's level.
    pub(crate) fn counterpart(&self, cell: &Cell) -> Cell {
        let mut counterpart = cell.clone();
        match self {
            Self::Path(path) => counterpart.treatment.path = *path,
            Self::Server(server) => counterpart.treatment.server = server.clone(),
            Self::Auth(auth) => counterpart.treatment.auth = *auth,
            Self::Ctx(ctx) => counterpart.treatment.ctx = cell.treatment.ctx.map(|_| *ctx),
            Self::Driver(driver) => counterpart.treatment.driver = driver.clone(),
            Self::AtRest(at_rest) => counterpart.treatment.at_rest = *at_rest,
        }
        counterpart.normalised()
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level: &dyn fmt::Display = match self {
            Self::Path(path) => path,
            Self::Server(server) => server,
            Self::Auth(auth) => auth,
            Self::Ctx(ctx) => ctx,
            Self::Driver(driver) => driver,
            Self::AtRest(at_rest) => at_rest,
        };
        write!(formatter, "{}={level}", self.factor().label())
    }
}

impl FromStr for Baseline {
    type Err = BaselineError;

    fn from_str(text: &str) -> Result<Self, BaselineError> {
        let shape = || BaselineError::Shape(text.to_owned());
        let (factor, level) = text.split_once('=').ok_or_else(shape)?;
        Ok(match factor {
            "path" => Self::Path(level.parse()?),
            "server" => Self::Server(level.parse()?),
            "auth" => Self::Auth(level.parse()?),
            "ctx" => Self::Ctx(level.parse()?),
            "driver" => Self::Driver(level.parse()?),
            "at-rest" => Self::AtRest(level.parse()?),
            _ => return Err(shape()),
        })
    }
}

/// Specifications have `FACTOR=LEVEL`; plans, written by machines, have two fields.
pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::Baseline;

    #[expect(clippy::ref_option, reason = "serde calls it with a reference")]
    pub(crate) fn serialize<S: Serializer>(
        baseline: &Option<Baseline>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match baseline {
            Some(baseline) => serializer.collect_str(baseline),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Baseline>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Some).map_err(de::Error::custom)
    }
}
