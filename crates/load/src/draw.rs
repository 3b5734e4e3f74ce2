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
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    fn possible(draws: &[Draw]) -> Result<Draws, String> {
        Draws::of(draws, Arc::new(Inserts::from(ciphertoll_model::ycsb::first_insert(1, 0))))
    }

    /// `count` draws of one number.
    fn numbers(draw: Draw, seed: u64, count: usize) -> Vec<i64> {
        let draws = possible(&[draw]).unwrap();
        let (mut random, mut values) = (Pcg64Mcg::seed_from_u64(seed), draws.values());
        let mut one = || {
            draws.draw(&draws.all(), &mut random, &mut values);
            values.number(0)
        };
        (0..count).map(|_| one()).collect()
    }

    proptest! {
        #[test]
        fn numbers_stay_in_their_range(seed: u64, first in -10_000_i64..10_000, width in 0_i64..1_000_000) {
            let last = first + width;
            let scrambled = Draw::ScrambledZipfian { first, last };
            for draw in [Draw::Uniform { first, last }, Draw::Special { first, last }, scrambled] {
                prop_assert!(numbers(draw, seed, 100).iter().all(|number| (first..=last).contains(number)));
            }
        }

        #[test]
        fn no_draw_panics(seed: u64, first: i64, last: i64, by: i64, of in 0_usize..3) {
            let draws = [
                Draw::Uniform { first, last },
                Draw::Special { first, last },
                Draw::Offset { of, by },
                Draw::ScrambledZipfian { first, last },
                Draw::Latest { loaded: last },
                Draw::YcsbKey { of },
            ];
            if let Ok(draws) = possible(&draws) {
                draws.draw(&draws.all(), &mut Pcg64Mcg::seed_from_u64(seed), &mut draws.values());
            }
        }

        #[test]
        fn digit_groups_have_their_shape(seed: u64, groups in 0_u8..12) {
            let draws = possible(&[Draw::DigitGroups { groups: 2 }, Draw::DigitGroups { groups }]).unwrap();
            let mut values = draws.values();
            draws.draw(&draws.all(), &mut Pcg64Mcg::seed_from_u64(seed), &mut values);
            let Value::Text(text) = draws.value(1, &values) else { panic!("it is text") };
            let text = std::str::from_utf8(text).unwrap();
            let parts: Vec<_> = text.split('-').filter(|part| !part.is_empty()).collect();
            prop_assert_eq!(parts.len(), usize::from(groups));
            for part in parts {
                prop_assert!(part.len() == 11 && part.bytes().all(|byte| byte.is_ascii_digit()), "{}", text);
            }
        }
    }

    /// The texts of two variables that depend on one number.
    #[test]
    fn keys_and_values_equal_ycsbs() {
        let draws = possible(&[
            Draw::Uniform { first: 1, last: 1 },
            Draw::YcsbKey { of: 0 },
            Draw::Printable { bytes: 100 },
            Draw::Offset { of: 0, by: -1 },
            Draw::YcsbKey { of: 3 },
        ])
        .unwrap();
        let (mut random, mut values) = (Pcg64Mcg::seed_from_u64(4), draws.values());
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            draws.draw(&draws.all(), &mut random, &mut values);
            assert_eq!(draws.value(1, &values), Value::Text(b"user8517097267634966620"));
            assert_eq!(draws.value(4, &values), Value::Text(b"user6284781860667377211"));
            let Value::Text(text) = draws.value(2, &values) else { panic!("it is text") };
            assert_eq!(text.len(), 100);
            seen.extend(text.iter().copied());
        }
        assert_eq!(seen, (b' '..=b'~').collect());
    }

    #[test]
    fn digits_are_written_without_a_gap() {
        for number in [0, 9, 10, 99, 100, 12_345, u64::MAX] {
            let mut room = [b'x'; MAX_DIGITS];
            let digits = write_digits(number, &mut room) as usize;
            assert_eq!(std::str::from_utf8(&room[..digits]).unwrap(), number.to_string());
        }
    }

    #[test]
    fn only_what_is_needed_is_drawn() {
        let draws = possible(&[
            Draw::Insert,
            Draw::YcsbKey { of: 0 },
            Draw::Uniform { first: 1, last: 9 },
            Draw::Offset { of: 2, by: 1 },
            Draw::YcsbKey { of: 3 },
            Draw::Latest { loaded: 10 },
        ])
        .unwrap();
        assert_eq!(draws.needed_for([1]), [0, 1]);
        assert_eq!(draws.needed_for([4]), [2, 3, 4]);
        assert_eq!(draws.needed_for([4, 1, 1]), [0, 1, 2, 3, 4]);
        let (mut random, mut values) = (Pcg64Mcg::seed_from_u64(5), draws.values());
        let first = ciphertoll_model::ycsb::first_insert(1, 0).cast_signed();
        for turn in 0..3 {
            draws.draw(&[4], &mut random, &mut values);
            draws.draw(&[0, 1], &mut random, &mut values);
            assert_eq!(values.number(0), first + turn);
        }
        // Only acknowledged records are read.
        for _ in 0..1_000 {
            draws.draw(&[5], &mut random, &mut values);
            assert!((0..10).contains(&values.number(5)));
        }
    }

    #[test]
    fn a_uniform_range_yields_every_number() {
        let drawn = numbers(Draw::Uniform { first: -2, last: 2 }, 7, 10_000);
        for number in -2..=2 {
            let times = drawn.iter().filter(|&&drawn| drawn == number).count();
            assert!((1_700..2_300).contains(&times), "{number} came {times} times");
        }
    }

    /// Three quarters fall into the middle hundredth and nearly all of the rest around it: far from the ends.
    #[test]
    fn special_draws_have_sysbenchs_shape() {
        let last = 1_000_000;
        let drawn = numbers(Draw::Special { first: 1, last }, 11, 100_000);
        let share = |range: Range<i64>| {
            drawn.iter().filter(|number| range.contains(number)).count() as f64 / drawn.len() as f64
        };
        // The hundredth without its first quarter: from 497,500 to 505,000. A few means fall there, too.
        let hot = share(497_500..505_002);
        assert!((0.75..0.78).contains(&hot), "{hot}");
        // The mean of twelve has a standard deviation of 1/12; five of them reach 0.083 and 0.917.
        assert!(share(83_000..917_000) > 0.9999);
        let around = share(333_333..666_667);
        assert!((0.97..0.99).contains(&around), "{around}");
    }

    #[test]
    fn an_offset_depends_on_its_number() {
        let draws = possible(&[
            Draw::Special { first: 1, last: 500 },
            Draw::Offset { of: 0, by: 99 },
            Draw::Offset { of: 1, by: -1 },
        ])
        .unwrap();
        let (mut random, mut values) = (Pcg64Mcg::seed_from_u64(3), draws.values());
        for _ in 0..100 {
            draws.draw(&draws.all(), &mut random, &mut values);
            assert_eq!(values.number(1), values.number(0) + 99);
            assert_eq!(draws.value(2, &values), Value::I64(values.number(0) + 98));
        }
    }

    #[test]
    fn impossible_draws_are_refused() {
        const ONE: Draw = Draw::Uniform { first: 1, last: 1 };
        let empty = "the range of variable 0 is empty";
        let offset = "variable 1 is an offset, but of no earlier number";
        let key = "variable 1 is a key, but of no earlier number";
        for (draws, expected) in [
            (&[Draw::Uniform { first: 2, last: 1 }][..], empty),
            (&[Draw::ScrambledZipfian { first: 2, last: 1 }], empty),
            (&[ONE, Draw::Offset { of: 1, by: 1 }], offset),
            (&[ONE, Draw::Offset { of: 2, by: 1 }], offset),
            (&[ONE, Draw::Offset { of: usize::MAX, by: 1 }], offset),
            (&[Draw::DigitGroups { groups: 1 }, Draw::Offset { of: 0, by: 1 }], offset),
            (&[Draw::Printable { bytes: 1 }, Draw::YcsbKey { of: 0 }], key),
            (&[Draw::Insert, Draw::YcsbKey { of: 1 }], key),
            (&[Draw::Latest { loaded: 0 }], "variable 0 chooses among no records"),
        ] {
            assert_eq!(possible(draws).unwrap_err(), expected);
        }
    }
}
