//! The tables of a template and of the servers that start from it.

use std::fmt;

use ciphertoll_model::cache::tables_bytes;
use ciphertoll_model::{Dataset, Engine, Scale};

use crate::datasets::{pgbench, sysbench};

/// The tables of a template; at most one scale of each dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tables {
    /// Rows of sysbench's table.
    pub sysbench: Option<Scale>,
    /// Accounts of pgbench; scales with the same number of branches are equivalent.
    pub pgbench: Option<Scale>,
    /// Documents of YCSB's collection.
    pub ycsb: Option<Scale>,
}

impl Tables {
    /// Whether a workload with this dataset and scale can use these tables.
    pub fn satisfies(&self, dataset: Option<Dataset>, scale: Scale) -> bool {
        match dataset {
            None => true,
            Some(Dataset::Sysbench) => self.sysbench == Some(scale),
            Some(Dataset::Pgbench) => self.branches() == Some(scale.branches()),
            Some(Dataset::Ycsb) => self.ycsb == Some(scale),
        }
    }

    /// Adds the tables of `dataset`; `None` if that dataset is present with another scale.
    pub fn merged_with(self, dataset: Option<Dataset>, scale: Scale) -> Option<Self> {
        let merged = match dataset {
            None => self,
            Some(Dataset::Sysbench) => Self { sysbench: self.sysbench.or(Some(scale)), ..self },
            Some(Dataset::Pgbench) => {
                Self { pgbench: self.pgbench.or(Some(scale.in_whole_branches())), ..self }
            }
            Some(Dataset::Ycsb) => Self { ycsb: self.ycsb.or(Some(scale)), ..self },
        };
        merged.satisfies(dataset, scale).then_some(merged)
    }

    /// Estimated size on `engine`; datasets of unknown size count as 0.
    pub fn bytes(&self, engine: Engine) -> u64 {
        let bytes = |(dataset, scale)| tables_bytes(engine, dataset, scale);
        self.scales().filter_map(bytes).sum::<f64>() as u64
    }

    /// The datasets that are present; pgbench's in whole branches.
    fn scales(&self) -> impl Iterator<Item = (Dataset, Scale)> {
        let pgbench = self.pgbench.map(Scale::in_whole_branches);
        let all =
            [(Dataset::Sysbench, self.sysbench), (Dataset::Pgbench, pgbench), (Dataset::Ycsb, self.ycsb)];
        all.into_iter().filter_map(|(dataset, scale)| Some((dataset, scale?)))
    }

    pub(crate) fn branches(&self) -> Option<u32> {
        self.pgbench.map(Scale::branches)
    }

    /// The part of a template's name that identifies the tables: `10000rows-200000accounts`.
    pub(crate) fn key(&self) -> String {
        let part = |(dataset, scale)| match dataset {
            Dataset::Sysbench => format!("{scale}rows"),
            Dataset::Pgbench => format!("{scale}accounts"),
            Dataset::Ycsb => format!("{scale}documents"),
        };
        let parts: Vec<String> = self.scales().map(part).collect();
        if parts.is_empty() { "empty".to_owned() } else { parts.join("-") }
    }

    /// Names and row counts of the tables whose row count does not change in workloads.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let accounts = self.pgbench.map(|scale| (pgbench::ACCOUNTS, scale.in_whole_branches().rows()));
        self.sysbench.map(|scale| (sysbench::TABLE, scale.rows())).into_iter().chain(accounts)
    }

    /// The table that every transaction of pgbench appends to and that nothing reads.
    pub(crate) fn history(&self) -> Option<&'static str> {
        self.pgbench.map(|_| pgbench::HISTORY)
    }

    /// The items for the datasets that are present.
    pub(crate) fn select<T: Copy>(&self, sysbench: &[T], pgbench: &[T]) -> Vec<T> {
        let sysbench = if self.sysbench.is_some() { sysbench } else { &[] };
        let pgbench = if self.pgbench.is_some() { pgbench } else { &[] };
        [sysbench, pgbench].concat()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let sysbench = self.sysbench.map(|_| sysbench::TABLE);
        sysbench.into_iter().chain(self.pgbench.iter().flat_map(|_| pgbench::TABLES))
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |(dataset, scale)| match dataset {
            Dataset::Sysbench => format!("sysbench's {scale} rows"),
            Dataset::Pgbench => format!("pgbench's {scale} accounts"),
            Dataset::Ycsb => format!("YCSB's {scale} documents"),
        };
        let parts: Vec<String> = self.scales().map(part).collect();
        if parts.is_empty() {
            return formatter.write_str("no tables");
        }
        formatter.write_str(&parts.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(rows: u32) -> Scale {
        rows.to_string().parse().unwrap()
    }

    #[test]
    fn tables_of_several_datasets_merge_but_each_has_one_scale() {
        let none = Tables::default();
        assert_eq!(none.merged_with(None, scale(5)), Some(none));
        let sysbench = none.merged_with(Some(Dataset::Sysbench), scale(5)).unwrap();
        assert_eq!(sysbench, Tables { sysbench: Some(scale(5)), ..none });
        assert_eq!(sysbench.merged_with(Some(Dataset::Sysbench), scale(6)), None);
        let both = sysbench.merged_with(Some(Dataset::Pgbench), scale(7)).unwrap();
        assert_eq!(both.merged_with(Some(Dataset::Sysbench), scale(5)), Some(both));
        assert_eq!(both.merged_with(Some(Dataset::Pgbench), scale(100_000)), Some(both), "the same branch");
        assert_eq!(both.merged_with(Some(Dataset::Pgbench), scale(100_001)), None);
    }

    #[test]
    fn only_tables_of_the_same_dataset_and_scale_satisfy_a_workload() {
        let tables = Tables { sysbench: Some(scale(5)), ..Tables::default() };
        assert!(tables.satisfies(None, scale(9)) && Tables::default().satisfies(None, scale(9)));
        assert!(tables.satisfies(Some(Dataset::Sysbench), scale(5)));
        assert!(!tables.satisfies(Some(Dataset::Sysbench), scale(6)));
        assert!(!tables.satisfies(Some(Dataset::Pgbench), scale(5)));
        let given = Tables { pgbench: Some(scale(150_000)), ..tables };
        assert!(given.satisfies(Some(Dataset::Pgbench), scale(200_000)));
    }

    #[test]
    fn the_key_identifies_datasets_and_scales() {
        let tables = |sysbench: Option<u32>, pgbench: Option<u32>| Tables {
            sysbench: sysbench.map(scale),
            pgbench: pgbench.map(scale),
            ycsb: None,
        };
        let both = tables(Some(5), Some(100_001));
        assert_eq!(both.key(), "5rows-200000accounts");
        assert_eq!(both.to_string(), "sysbench's 5 rows and pgbench's 200000 accounts");
        assert_eq!(both.names().count(), 5);
        assert_eq!(tables(Some(5), None).key(), "5rows");
        let documents = Tables { ycsb: Some(scale(5)), ..Tables::default() };
        assert_eq!(
            (documents.key(), documents.to_string()),
            ("5documents".into(), "YCSB's 5 documents".into())
        );
        assert_eq!(tables(None, Some(5)).key(), "100000accounts");
        assert_eq!((Tables::default().key(), Tables::default().names().count()), ("empty".to_owned(), 0));
    }
}
