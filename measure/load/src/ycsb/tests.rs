use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

fn summed(ranks: u64) -> f64 {
    (1..=ranks).map(|rank| (rank as f64).powf(-ZIPFIAN_CONSTANT)).sum()
}

#[test]
fn sums_are_those_of_all_shares() {
    for ranks in [1, 2, 99, 100, 101, 1_000, 100_000] {
        let error = (zeta(ranks) / summed(ranks) - 1.0).abs();
        assert!(error < 1e-10, "{ranks}: {error}");
    }
    // YCSB's own constant.
    assert!((zeta(SCRAMBLED_RANKS) / SCRAMBLED_ZETA - 1.0).abs() < 1e-9, "{}", zeta(SCRAMBLED_RANKS));
}

/// The approximation is exact for the first ranks and close for the rest.
#[test]
fn ranks_have_their_shares() {
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let (ranks, draws) = (1_000, 1_000_000);
    let zipfian = Zipfian::over(ranks);
    let mut counts = vec![0_u32; ranks as usize];
    for _ in 0..draws {
        counts[zipfian.rank(random.random()) as usize] += 1;
    }
    let share = |rank: usize| f64::from(counts[rank]) / f64::from(draws);
    for rank in 0..2 {
        let expected = ((rank + 1) as f64).powf(-ZIPFIAN_CONSTANT) / zeta(ranks);
        assert!((share(rank) / expected - 1.0).abs() < 0.02, "{rank}: {} {expected}", share(rank));
    }
    let mean: f64 = counts.iter().enumerate().map(|(rank, &count)| rank as f64 * f64::from(count)).sum();
    let exact: f64 = (0..ranks).map(|rank| rank as f64 * ((rank + 1) as f64).powf(-ZIPFIAN_CONSTANT)).sum();
    let (mean, exact) = (mean / f64::from(draws), exact / zeta(ranks));
    assert!((mean / exact - 1.0).abs() < 0.05, "{mean} {exact}");
}

/// YCSB's hot records are not neighbours, and the hottest has its rank's share.
#[test]
fn scrambling_spreads_hot_records() {
    let mut random = Pcg64Mcg::seed_from_u64(6);
    let (records, draws) = (1_000_u64, 1_000_000);
    let ranks = scrambled_ranks();
    let mut counts = vec![0_u32; records as usize];
    for _ in 0..draws {
        counts[scrambled(ranks.rank(random.random()), records) as usize] += 1;
    }
    let mut hot: Vec<usize> = (0..records as usize).collect();
    hot.sort_by_key(|&record| std::cmp::Reverse(counts[record]));
    assert_eq!(hot[0] as u64, key_hash(0) % records);
    assert_eq!(hot[1] as u64, key_hash(1) % records);
    // Some of the other ranks map to the same record.
    let share = f64::from(counts[hot[0]]) / f64::from(draws);
    let expected = 1.0 / SCRAMBLED_ZETA;
    assert!(share > expected && share < expected + 0.005, "{share} {expected}");
    assert!(counts.iter().all(|&count| count > 0), "every record comes");
    assert!(hot[..10].windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{:?}", &hot[..10]);
}

#[test]
fn the_newest_record_is_the_most_popular() {
    let inserts = Inserts::from(1 << 32);
    let numbers: Vec<u64> = (0..3).map(|_| inserts.begin()).collect();
    let newest = |inserts: &Inserts| inserts.latest(100, 0.0);
    assert_eq!(newest(&inserts), 99);
    // Not acknowledged before all earlier ones are.
    inserts.acknowledge(numbers[1]);
    assert_eq!(newest(&inserts), 99);
    inserts.acknowledge(numbers[0]);
    assert_eq!(newest(&inserts), numbers[1]);
    inserts.acknowledge(numbers[2]);
    assert_eq!(newest(&inserts), numbers[2]);
    assert_eq!(inserts.beyond.lock().unwrap().len(), 0);
    let mut random = Pcg64Mcg::seed_from_u64(8);
    let drawn: Vec<u64> = (0..100_000).map(|_| inserts.latest(100, random.random())).collect();
    let share = |number| drawn.iter().filter(|&&drawn| drawn == number).count() as f64 / 100_000.0;
    let expected = 1.0 / zeta(103);
    assert!((share(numbers[2]) / expected - 1.0).abs() < 0.03, "{} {expected}", share(numbers[2]));
    assert!(share(numbers[2]) > share(numbers[1]) && share(numbers[1]) > share(numbers[0]));
    assert!(drawn.iter().all(|number| *number < 100 || numbers.contains(number)));
    assert!(drawn.contains(&0), "the oldest comes, too");
}

#[test]
fn threads_insert_no_record_twice() {
    let inserts = Inserts::from(1 << 33);
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let insert = || {
            let begin = |_| {
                let number = inserts.begin();
                inserts.acknowledge(number);
                number
            };
            (0..1_000).map(begin).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(insert)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert!(all.iter().enumerate().all(|(at, number)| *number == inserts.first + at as u64));
    assert_eq!(inserts.acknowledged.load(Ordering::Relaxed), 4_000);
}

proptest! {
    #[test]
    fn ranks_and_records_are_in_range(
        ranks in 0..u64::from(u32::MAX), records in 0..1_000_000_u64, uniform in 0.0..1.0_f64
    ) {
        prop_assert!(Zipfian::over(ranks).rank(uniform) < ranks.max(1));
        prop_assert!(scrambled(scrambled_ranks().rank(uniform), records) < records.max(1));
        prop_assert!(Inserts::from(1 << 32).latest(records, uniform) < records.max(1));
    }
}
