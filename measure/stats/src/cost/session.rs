//! The cost of a session, a connect and its queries, in one quantity: CPU time of one role, or time.

use serde::Serialize;

use super::load::SessionQueries;
use super::sum::WeightedSum;

/// Bytes of the smallest measured result and of a TLS record's payload.
pub(super) const SMALL_ROW_BYTES: u32 = 1 << 10;
const RECORD_BYTES: u32 = 1 << 14;

/// The cost of a session in one quantity.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionCosts {
    /// A connect and its close.
    pub connect: ByClients,
    /// The first query of a connection.
    pub first_query: Option<WeightedSum>,
    /// Each further query.
    pub further_query: ByClients,
    pub rows: Option<RowCosts>,
}

/// A cost at several numbers of concurrent clients, the fewest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ByClients(pub Vec<(u16, WeightedSum)>);

/// The cost of long results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowCosts {
    pub per_byte: WeightedSum,
    /// In addition to its bytes.
    pub per_record: WeightedSum,
}

impl ByClients {
    /// The cost at a mean number of concurrent operations: linear in its logarithm between the measured numbers, constant
    /// beyond them.
    pub fn at(&self, concurrency: f64) -> Option<WeightedSum> {
        let above = self.0.iter().position(|(clients, _)| f64::from(*clients) >= concurrency);
        Some(match above {
            None => self.0.last()?.1.clone(),
            Some(0) => self.0.first()?.1.clone(),
            Some(above) => {
                let ((fewer, low), (more, high)) = (&self.0[above - 1], &self.0[above]);
                let position =
                    (concurrency / f64::from(*fewer)).ln() / (f64::from(*more) / f64::from(*fewer)).ln();
                low.clone() * (1.0 - position) + &(high.clone() * position)
            }
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl RowCosts {
    /// From results of 1, 16 and 256 KiB, which take 1, 2 and 17 records: a record's payload is at most 16 KiB, and the
    /// message around the value takes a few bytes.
    pub(super) fn of([small, medium, large]: [WeightedSum; 3]) -> Self {
        let (to_medium, to_large) = (medium - &small, large - &small);
        // to_medium = 1 record + 15 KiB; to_large = 16 records + 255 KiB.
        let per_kib = (to_large.clone() - &(to_medium.clone() * 16.0)) * (1.0 / 15.0);
        let per_record = to_medium * 17.0 - &to_large;
        Self { per_byte: per_kib * (1.0 / 1024.0), per_record }
    }

    /// Of a result of many records: a byte and its share of a record. The two can be told apart much less precisely.
    pub fn per_byte_of_long_rows(&self) -> WeightedSum {
        self.per_byte.clone() + &(self.per_record.clone() * f64::from(RECORD_BYTES).recip())
    }

    /// Beyond a result of [`SMALL_ROW_BYTES`].
    pub fn of_row(&self, bytes: u32) -> WeightedSum {
        let more_records = bytes / RECORD_BYTES;
        let more_bytes = bytes.saturating_sub(SMALL_ROW_BYTES);
        self.per_byte.clone() * f64::from(more_bytes) + &(self.per_record.clone() * f64::from(more_records))
    }
}

impl SessionCosts {
    /// All queries of a session; `None` if the run lacks a term.
    pub fn queries(&self, count: SessionQueries, row_bytes: u32, concurrency: f64) -> Option<WeightedSum> {
        if count.mean() == 0.0 {
            return Some(WeightedSum::default());
        }
        let further = self.further_query.at(concurrency);
        let first = self.first_query.clone().or_else(|| further.clone())? * count.first();
        let queries = if count.further() > 0.0 { first + &(further? * count.further()) } else { first };
        if row_bytes <= SMALL_ROW_BYTES {
            return Some(queries);
        }
        Some(queries + &(self.rows.as_ref()?.of_row(row_bytes) * count.mean()))
    }
}
