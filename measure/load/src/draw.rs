//! Random variables of a script.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use ciphertoll_model::Draw;
use ciphertoll_model::ycsb::{KEY_PREFIX, key_hash};
use ciphertoll_wire::session::Value;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::ycsb::{Inserts, Zipfian, scrambled, scrambled_ranks};

/// sysbench's defaults for the distribution `special`: the mean of so many uniform draws; the share of draws taken from
/// the hot range instead; and the hot range's share of all values.
const SPECIAL_MEANS_OF: u32 = 12;
const SPECIAL_SHARE: f64 = 0.75;
const SPECIAL_RANGE: f64 = 0.01;

/// Printable ASCII, from space to tilde; one 64-bit draw yields nine of them, as 95^9 is below 2^60.
const PRINTABLE: u64 = 95;
const PRINTABLE_AT_ONCE: usize = 9;

/// Digits of the longest number in a key.
const MAX_DIGITS: usize = 20;

/// Digits of a group in sysbench's text columns.
const GROUP_DIGITS: usize = 11;

/// Validated draws, one for each variable.
#[derive(Debug)]
pub(crate) struct Draws {
    kinds: Vec<Kind>,
    scrambled: Zipfian,
    inserts: Arc<Inserts>,
}

#[derive(Debug)]
enum Kind {
    Uniform {
        first: i64,
        last: i64,
    },
    Special {
        first: i64,
        last: i64,
    },
    Offset {
        of: usize,
        by: i64,
    },
    /// Where in the text the digits are.
    DigitGroups(Range<usize>),
    ScrambledZipfian {
        first: i64,
        records: u64,
    },
    Insert,
    Latest {
        loaded: u64,
    },
    /// Where in the text the key begins; its length is the variable's number.
    YcsbKey {
        of: usize,
        room: Range<usize>,
    },
    Printable(Range<usize>),
}

/// The values of one client's transaction, reused for the next.
pub(crate) struct Values {
    numbers: Vec<i64>,
    text: Vec<u8>,
}

impl Draws {
    /// Validates draws. All threads of a trial share the same inserts.
    pub(crate) fn of(draws: &[Draw], inserts: Arc<Inserts>) -> Result<Self, String> {
        let mut kinds: Vec<Kind> = Vec::with_capacity(draws.len());
        let mut text_bytes = 0;
        let mut room = |bytes: usize| {
            let first = text_bytes;
            text_bytes += bytes;
            first..text_bytes
        };
        for (number, draw) in draws.iter().enumerate() {
            let check_origin = |what, of: usize| match kinds.get(of) {
                Some(kind) if kind.text().is_none() => Ok(()),
                _ => Err(format!("variable {number} is {what}, but of no earlier number")),
            };
            let kind = match *draw {
                Draw::Uniform { first, last } if first <= last => Kind::Uniform { first, last },
                Draw::Special { first, last } if first <= last => Kind::Special { first, last },
                Draw::ScrambledZipfian { first, last } if first <= last => {
                    Kind::ScrambledZipfian { first, records: first.abs_diff(last).saturating_add(1) }
                }
                Draw::Uniform { .. } | Draw::Special { .. } | Draw::ScrambledZipfian { .. } => {
                    return Err(format!("the range of variable {number} is empty"));
                }
                Draw::Offset { of, by } => {
                    check_origin("an offset", of)?;
                    Kind::Offset { of, by }
                }
                Draw::DigitGroups { groups } => {
                    Kind::DigitGroups(room((usize::from(groups) * (GROUP_DIGITS + 1)).saturating_sub(1)))
                }
                Draw::Insert => Kind::Insert,
                Draw::Latest { loaded: loaded @ 1.. } => Kind::Latest { loaded: loaded.unsigned_abs() },
                Draw::Latest { .. } => return Err(format!("variable {number} chooses among no records")),
                Draw::YcsbKey { of } => {
                    check_origin("a key", of)?;
                    Kind::YcsbKey { of, room: room(KEY_PREFIX.len() + MAX_DIGITS) }
                }
                Draw::Printable { bytes } => Kind::Printable(room(usize::from(bytes))),
            };
            kinds.push(kind);
        }
        Ok(Self { kinds, scrambled: scrambled_ranks(), inserts })
    }

    /// Whether the variable is a number; `None` if it does not exist.
    pub(crate) fn is_number(&self, variable: usize) -> Option<bool> {
        Some(self.kinds.get(variable)?.text().is_none())
    }

    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.kinds.len()).collect()
    }

    /// These variables and the ones they depend on, in order.
    pub(crate) fn needed_for(&self, variables: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut needed: BTreeSet<usize> = variables.into_iter().collect();
        let origin = |variable: &usize| match self.kinds.get(*variable)? {
            Kind::Offset { of, .. } | Kind::YcsbKey { of, .. } => Some(*of),
            _ => None,
        };
        let mut origins: Vec<usize> = needed.iter().filter_map(origin).collect();
        while let Some(variable) = origins.pop() {
            if needed.insert(variable) {
                origins.extend(origin(&variable));
            }
        }
        needed.into_iter().collect()
    }

    /// Storage for the values, all 0.
    pub(crate) fn values(&self) -> Values {
        let text_bytes = self.kinds.iter().filter_map(Kind::text).map(|range| range.end);
        let mut text = vec![b'-'; text_bytes.max().unwrap_or(0)];
        for kind in &self.kinds {
            if let Kind::YcsbKey { room, .. } = kind {
                text[room.clone()][..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX.as_bytes());
            }
        }
        Values { numbers: vec![0; self.kinds.len()], text }
    }

    #[inline]
    pub(crate) fn draw(&self, variables: &[usize], random: &mut Pcg64Mcg, values: &mut Values) {
        for &number in variables {
            values.numbers[number] = match &self.kinds[number] {
                Kind::Uniform { first, last } => random.random_range(*first..=*last),
                Kind::Special { first, last } => special(random, *first, *last),
                Kind::Offset { of, by } => values.numbers[*of].saturating_add(*by),
                Kind::DigitGroups(range) => {
                    for group in values.text[range.clone()].chunks_mut(GROUP_DIGITS + 1) {
                        fill_digits(random, &mut group[..GROUP_DIGITS]);
                    }
                    0
                }
                Kind::ScrambledZipfian { first, records } => {
                    let rank = self.scrambled.rank(random.random());
                    first.saturating_add_unsigned(scrambled(rank, *records))
                }
                Kind::Insert => self.inserts.begin().cast_signed(),
                Kind::Latest { loaded } => self.inserts.latest(*loaded, random.random()).cast_signed(),
                Kind::YcsbKey { of, room } => {
                    let hash = key_hash(values.numbers[*of].cast_unsigned());
                    write_digits(hash, &mut values.text[room.clone()][KEY_PREFIX.len()..])
                }
                Kind::Printable(range) => {
                    fill_printable(random, &mut values.text[range.clone()]);
                    0
                }
            };
        }
    }

    #[inline]
    pub(crate) fn value<'a>(&self, variable: usize, values: &'a Values) -> Value<'a> {
        let number = values.numbers[variable];
        match &self.kinds[variable] {
            Kind::DigitGroups(range) | Kind::Printable(range) => Value::Text(&values.text[range.clone()]),
            Kind::YcsbKey { room, .. } => {
                let key = &values.text[room.clone()];
                Value::Text(&key[..KEY_PREFIX.len() + number as usize])
            }
            _ => Value::I64(number),
        }
    }

    /// The server has executed the statement with these variables: inserted records now exist.
    #[inline]
    pub(crate) fn acknowledge(&self, variables: &[usize], values: &Values) {
        for &number in variables {
            if matches!(self.kinds[number], Kind::Insert) {
                self.inserts.acknowledge(values.numbers[number].cast_unsigned());
            }
        }
    }
}

impl Kind {
    /// Its range within the text, if it is text.
    fn text(&self) -> Option<&Range<usize>> {
        match self {
            Self::DigitGroups(range) | Self::Printable(range) | Self::YcsbKey { room: range, .. } => {
                Some(range)
            }
            Self::Uniform { .. }
            | Self::Special { .. }
            | Self::Offset { .. }
            | Self::ScrambledZipfian { .. }
            | Self::Insert
            | Self::Latest { .. } => None,
        }
    }
}

impl Values {
    /// A number; 0 for a text.
    #[inline]
    pub(crate) fn number(&self, variable: usize) -> i64 {
        self.numbers[variable]
    }
}

/// sysbench's distribution `special` over `first..=last`. As in sysbench, one draw decides both between hot and other
/// values and where in the hot hundredth the value falls. The first quarter of that hundredth is therefore never hot.
fn special(random: &mut Pcg64Mcg, first: i64, last: i64) -> i64 {
    let width = last.wrapping_sub(first) as u64 as f64;
    let choice: f64 = random.random();
    let offset = if choice < 1.0 - SPECIAL_SHARE {
        let sum: f64 = (0..SPECIAL_MEANS_OF).map(|_| random.random::<f64>()).sum();
        sum / f64::from(SPECIAL_MEANS_OF) * width
    } else {
        let hot = width * SPECIAL_RANGE;
        (width - hot) / 2.0 + choice * (hot + 1.0)
    };
    // In a small range the hot hundredth is rounded up to one row, which may exceed the range.
    first.saturating_add(offset as i64).min(last)
}

/// Writes a number at the start of `room` and returns its number of digits.
fn write_digits(number: u64, room: &mut [u8]) -> i64 {
    let digits = number.checked_ilog10().map_or(1, |power| power + 1);
    let mut rest = number;
    for digit in room[..digits as usize].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits.into()
}

fn fill_printable(random: &mut Pcg64Mcg, text: &mut [u8]) {
    for part in text.chunks_mut(PRINTABLE_AT_ONCE) {
        let mut number: u64 = random.random_range(0..PRINTABLE.pow(PRINTABLE_AT_ONCE as u32));
        for character in part {
            *character = b' ' + (number % PRINTABLE) as u8;
            number /= PRINTABLE;
        }
    }
}

fn fill_digits(random: &mut Pcg64Mcg, digits: &mut [u8]) {
    // One draw yields eleven digits: 10^11 is far below 2^64.
    let mut number: u64 = random.random_range(0..10_u64.pow(GROUP_DIGITS as u32));
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests;
