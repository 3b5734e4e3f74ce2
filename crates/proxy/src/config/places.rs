//! One place, or a list of several.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::settings::Listen;

/// As the schema says it.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "what can be written, for the schema; a visitor reads it, whose errors are better"
)]
pub(super) enum OneOrMore {
    One(Listen),
    More(Vec<Listen>),
}

pub(super) fn serialize<S: Serializer>(places: &[Listen], serializer: S) -> Result<S::Ok, S::Error> {
    match places {
        [one] => one.serialize(serializer),
        more => more.serialize(serializer),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Listen>, D::Error> {
    deserializer.deserialize_any(PlacesVisitor)
}

struct PlacesVisitor;

impl<'de> Visitor<'de> for PlacesVisitor {
    type Value = Vec<Listen>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a place such as \"unix:/run/app/.s.PGSQL.6432\", or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<Listen>, E> {
        text.parse().map(|place| vec![place]).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<Listen>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list))
    }
}
