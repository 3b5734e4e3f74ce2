//! Reads and writes `listen`: one address, or a list.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::settings::ListenAddress;

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the setting for the schema; the visitor reads it with better errors")]
pub(super) enum OneOrMore {
    One(ListenAddress),
    More(Vec<ListenAddress>),
}

pub(super) fn serialize<S: Serializer>(
    addresses: &[ListenAddress],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match addresses {
        [one] => one.serialize(serializer),
        more => more.serialize(serializer),
    }
}

pub(super) fn deserialize<'de, P: Deserializer<'de>>(
    deserializer: P,
) -> Result<Vec<ListenAddress>, P::Error> {
    deserializer.deserialize_any(ListenVisitor)
}

struct ListenVisitor;

impl<'de> Visitor<'de> for ListenVisitor {
    type Value = Vec<ListenAddress>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an address such as \"unix:/run/app/.s.PGSQL.6432\", or a list of addresses")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<ListenAddress>, E> {
        text.parse().map(|address| vec![address]).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<ListenAddress>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list))
    }
}
