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
