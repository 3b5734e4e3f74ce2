//! Variables and how they get their values.

use std::ops::Range;

use ciphertoll_model::Draw;
use ciphertoll_wire::session::Value;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// sysbench's defaults for `special`: means of so many uniform draws, the share of draws that are not
/// such means, and the share of the range that those fall into.
const SPECIAL_MEANS_OF: u32 = 12;
const SPECIAL_SHARE: f64 = 0.75;
const SPECIAL_RANGE: f64 = 0.01;

/// Digits of a group in sysbench's text columns.
const GROUP_DIGITS: usize = 11;

/// Draws that have been found possible, one for each variable.
#[derive(Debug)]
pub(crate) struct Draws(Vec<Kind>);

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
    /// Where in the text the digits stand.
    DigitGroups(Range<usize>),
}

/// The values of one client's transaction. Their memory is used again for the next.
pub(crate) struct Values {
    numbers: Vec<i64>,
    text: Vec<u8>,
}

impl Draws {
    /// Says why where a draw is impossible.
    pub(crate) fn of(draws: &[Draw]) -> Result<Self, String> {
        let mut kinds: Vec<Kind> = Vec::with_capacity(draws.len());
        let mut text_bytes = 0;
        for (number, draw) in draws.iter().enumerate() {
            let kind = match *draw {
                Draw::Uniform { first, last } if first <= last => Kind::Uniform { first, last },
                Draw::Special { first, last } if first <= last => Kind::Special { first, last },
                Draw::Uniform { .. } | Draw::Special { .. } => {
                    return Err(format!("the range of variable {number} is empty"));
                }
                Draw::Offset { of, by } => match kinds.get(of) {
                    Some(Kind::Uniform { .. } | Kind::Special { .. } | Kind::Offset { .. }) => {
                        Kind::Offset { of, by }
                    }
                    _ => return Err(format!("variable {number} is an offset of what is no earlier number")),
                },
                Draw::DigitGroups { groups } => {
                    let first = text_bytes;
                    text_bytes += (usize::from(groups) * (GROUP_DIGITS + 1)).saturating_sub(1);
                    Kind::DigitGroups(first..text_bytes)
                }
            };
            kinds.push(kind);
        }
        Ok(Self(kinds))
    }

    /// Whether there is such a variable, and whether it is a number.
    pub(crate) fn is_number(&self, variable: usize) -> Option<bool> {
        Some(!matches!(self.0.get(variable)?, Kind::DigitGroups(_)))
    }

    /// Room for the values, which are all 0.
    pub(crate) fn values(&self) -> Values {
        let text_bytes = self.0.iter().map(|kind| match kind {
            Kind::DigitGroups(range) => range.end,
            Kind::Uniform { .. } | Kind::Special { .. } | Kind::Offset { .. } => 0,
        });
        Values { numbers: vec![0; self.0.len()], text: vec![b'-'; text_bytes.max().unwrap_or(0)] }
    }

    /// Draws all variables anew.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Pcg64Mcg, values: &mut Values) {
        for (number, kind) in self.0.iter().enumerate() {
            values.numbers[number] = match kind {
                Kind::Uniform { first, last } => random.random_range(*first..=*last),
                Kind::Special { first, last } => special(random, *first, *last),
                Kind::Offset { of, by } => values.numbers[*of].saturating_add(*by),
                Kind::DigitGroups(range) => {
                    for group in values.text[range.clone()].chunks_mut(GROUP_DIGITS + 1) {
                        fill_digits(random, &mut group[..GROUP_DIGITS]);
                    }
                    0
                }
            };
        }
    }

    /// A variable's value.
    #[inline]
    pub(crate) fn value<'a>(&self, variable: usize, values: &'a Values) -> Value<'a> {
        match &self.0[variable] {
            Kind::DigitGroups(range) => Value::Text(&values.text[range.clone()]),
            Kind::Uniform { .. } | Kind::Special { .. } | Kind::Offset { .. } => {
                Value::I64(values.numbers[variable])
            }
        }
    }
}

impl Values {
    /// A number; 0 of a text.
    #[inline]
    pub(crate) fn number(&self, variable: usize) -> i64 {
        self.numbers[variable]
    }
}

/// sysbench's distribution `special` over `first..=last`. One draw decides both which part a value is from and
/// where in the middle hundredth it falls, as it does in sysbench: so the first quarter of that hundredth is left
/// out, and the hot rows are as few as sysbench's.
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
    // In a range of few rows the hundredth is widened to one row, which may end beyond the last.
    first.saturating_add(offset as i64).min(last)
}

fn fill_digits(random: &mut Pcg64Mcg, digits: &mut [u8]) {
    // One draw is enough for eleven digits: 10^11 is far below 2^64.
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

    /// So many draws of one number.
    fn numbers(draw: Draw, seed: u64, count: usize) -> Vec<i64> {
        let draws = Draws::of(&[draw]).unwrap();
        let (mut random, mut values) = (Pcg64Mcg::seed_from_u64(seed), draws.values());
        let mut one = || {
            draws.draw(&mut random, &mut values);
            values.number(0)
        };
        (0..count).map(|_| one()).collect()
    }

    proptest! {
        #[test]
        fn numbers_stay_in_their_range(seed: u64, first in -10_000_i64..10_000, width in 0_i64..1_000_000) {
            let last = first + width;
            for draw in [Draw::Uniform { first, last }, Draw::Special { first, last }] {
                prop_assert!(numbers(draw, seed, 100).iter().all(|number| (first..=last).contains(number)));
            }
        }

        #[test]
        fn whatever_is_asked_for_does_not_panic(seed: u64, first: i64, last: i64, by: i64, of in 0_usize..3) {
            let draws = [Draw::Uniform { first, last }, Draw::Special { first, last }, Draw::Offset { of, by }];
            if let Ok(draws) = Draws::of(&draws) {
                draws.draw(&mut Pcg64Mcg::seed_from_u64(seed), &mut draws.values());
            }
        }

        #[test]
        fn digit_groups_have_their_shape(seed: u64, groups in 0_u8..12) {
            let draws = Draws::of(&[Draw::DigitGroups { groups: 2 }, Draw::DigitGroups { groups }]).unwrap();
            let mut values = draws.values();
            draws.draw(&mut Pcg64Mcg::seed_from_u64(seed), &mut values);
            let Value::Text(text) = draws.value(1, &values) else { panic!("it is text") };
            let text = std::str::from_utf8(text).unwrap();
            let parts: Vec<_> = text.split('-').filter(|part| !part.is_empty()).collect();
            prop_assert_eq!(parts.len(), usize::from(groups));
            for part in parts {
                prop_assert!(part.len() == 11 && part.bytes().all(|byte| byte.is_ascii_digit()), "{}", text);
            }
        }
    }

    #[test]
    fn every_number_of_a_uniform_range_comes() {
        let drawn = numbers(Draw::Uniform { first: -2, last: 2 }, 7, 10_000);
        for number in -2..=2 {
            let times = drawn.iter().filter(|&&drawn| drawn == number).count();
            assert!((1_700..2_300).contains(&times), "{number} came {times} times");
        }
    }

    /// Three quarters in the middle hundredth and nearly all of the rest around it: far from the ends.
    #[test]
    fn special_draws_have_sysbenchs_shape() {
        let last = 1_000_000;
        let drawn = numbers(Draw::Special { first: 1, last }, 11, 100_000);
        let share = |range: Range<i64>| {
            drawn.iter().filter(|number| range.contains(number)).count() as f64 / drawn.len() as f64
        };
        // The hundredth without its first quarter, from 497,500 to 505,000; a few means fall there, too.
        let hot = share(497_500..505_002);
        assert!((0.75..0.78).contains(&hot), "{hot}");
        // The mean of twelve has a standard deviation of a twelfth: five of them reach 0.083 and 0.917.
        assert!(share(83_000..917_000) > 0.9999);
        let around = share(333_333..666_667);
        assert!((0.97..0.99).contains(&around), "{around}");
    }

    #[test]
    fn an_offset_follows_its_number() {
        let draws = Draws::of(&[
            Draw::Special { first: 1, last: 500 },
            Draw::Offset { of: 0, by: 99 },
            Draw::Offset { of: 1, by: -1 },
        ])
        .unwrap();
        let (mut random, mut values) = (Pcg64Mcg::seed_from_u64(3), draws.values());
        for _ in 0..100 {
            draws.draw(&mut random, &mut values);
            assert_eq!(values.number(1), values.number(0) + 99);
            assert_eq!(draws.value(2, &values), Value::I64(values.number(0) + 98));
        }
    }

    #[test]
    fn impossible_draws_are_refused() {
        let refused = |draws: &[Draw]| Draws::of(draws).unwrap_err();
        assert_eq!(refused(&[Draw::Uniform { first: 2, last: 1 }]), "the range of variable 0 is empty");
        let offset = "variable 1 is an offset of what is no earlier number";
        for of in [1, 2, usize::MAX] {
            assert_eq!(refused(&[Draw::Uniform { first: 1, last: 1 }, Draw::Offset { of, by: 1 }]), offset);
        }
        assert_eq!(refused(&[Draw::DigitGroups { groups: 1 }, Draw::Offset { of: 0, by: 1 }]), offset);
    }
}
