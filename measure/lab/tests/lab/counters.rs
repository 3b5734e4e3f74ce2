//! Counters of pages, log and checkpoints of real servers, and durations of syncs.

use std::time::{Duration, Instant};

use ciphertoll_lab::{Counters, Server, Tables};
use ciphertoll_model::{AtRest, Auth, Engine};

use crate::fixture::{Fixture, Way, connect, scale};

const ROWS: u32 = 2_000;

fn fixtures() -> impl Iterator<Item = Fixture> {
    [Engine::MariaDb, Engine::MySql, Engine::Postgres].into_iter().flat_map(Fixture::all)
}

fn start(fixture: &Fixture, at_rest: AtRest, settings: &[&str]) -> Option<Server> {
    let tables = Tables { sysbench: Some(scale(ROWS)), ..Tables::default() };
    fixture.start_at_rest(&tables, at_rest, settings)
}

fn execute(server: &Server, sql: &str) {
    let engine = server.engine();
    let mut client = connect(server, Auth::default_of(engine), Way::Unix).unwrap();
    client.execute(sql).unwrap();
    client.close().unwrap();
}

/// The difference of counters once `is_there` holds, at most a minute later: sessions and checkpoints publish their counters
/// when they end, which is late on a busy machine.
fn counted_since(server: &Server, before: &Counters, is_there: impl Fn(&Counters) -> bool) -> Counters {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let counted = server.counters().unwrap().since(before);
        if is_there(&counted) || Instant::now() >= deadline {
            return counted;
        }
    }
}

#[test]
fn writes_of_a_load_are_counted() {
    for fixture in fixtures() {
        let server = start(&fixture, AtRest::None, &[]).unwrap();
        server.prewarm().unwrap();
        let before = server.counters().unwrap();
        execute(&server, "UPDATE sbtest1 SET k = k + 1");
        let is_written =
            |counted: &Counters| counted.wal_bytes.is_some_and(|bytes| bytes > u64::from(ROWS) * 20);
        let counted = counted_since(&server, &before, |counted| {
            is_written(counted)
                && counted.wal_syncs.is_none_or(|syncs| syncs > 0)
                && counted.full_page_images.is_none_or(|images| images > 10)
        });
        assert!(is_written(&counted), "{:?}: {counted:?}", fixture.build);
        assert!(counted.pages_written.is_some(), "{:?}: {counted:?}", fixture.build);
        // Rows are cached; few other pages (catalogs, undo) are read.
        assert!(counted.pages_read.is_some_and(|pages| pages < 200), "{:?}: {counted:?}", fixture.build);
        if fixture.build.engine == Engine::Postgres {
            // The first change of each page since the start.
            assert!(counted.full_page_images.is_some_and(|images| images > 10), "{counted:?}");
            assert!(counted.wal_syncs.is_some_and(|syncs| syncs > 0), "{:?}: {counted:?}", fixture.build);
            let checkpoints = [counted.checkpoints_begun, counted.checkpoints_completed];
            assert_eq!(checkpoints, [Some(0); 2], "{:?}", fixture.build);
        } else {
            assert!(counted.checkpoint_age_bytes.is_some_and(|bytes| bytes > 0), "{counted:?}");
            assert_eq!((counted.checkpoints_begun, counted.full_page_images), (None, None));
        }
    }
}

#[test]
fn checkpoints_and_their_writes_are_counted() {
    for fixture in Fixture::all(Engine::Postgres) {
        let server = start(&fixture, AtRest::None, &["postgres.max_wal_size=32MB"]).unwrap();
        let before = server.counters().unwrap();
        // More WAL than the maximum between two checkpoints.
        for _ in 0..40 {
            execute(&server, "UPDATE sbtest1 SET pad = md5(pad), c = c");
        }
        let is_checkpointed = |counted: &Counters| {
            counted.checkpoints_begun.is_some_and(|count| count > 0)
                && counted.pages_written.is_some_and(|pages| pages > 10)
        };
        let counted = counted_since(&server, &before, is_checkpointed);
        assert!(counted.wal_bytes.is_some_and(|bytes| bytes > 20 << 20), "{:?}: {counted:?}", fixture.build);
        assert!(is_checkpointed(&counted), "{:?}: {counted:?}", fixture.build);
    }
}

#[test]
fn pages_beyond_the_buffers_are_read_and_written() {
    // InnoDB's minimum pool is larger than all rows.
    for fixture in Fixture::all(Engine::Postgres) {
        let server = start(&fixture, AtRest::None, &["postgres.shared_buffers=256kB"]).unwrap();
        let before = server.counters().unwrap();
        execute(&server, "SELECT count(pad) FROM sbtest1");
        let has_crossed = |counted: &Counters| counted.pages_read.is_some_and(|pages| pages > 40);
        let counted = counted_since(&server, &before, has_crossed);
        assert!(has_crossed(&counted), "{:?}: {counted:?}", fixture.build);
    }
}

#[test]
fn syncs_are_timed_in_the_file_system_of_the_data() {
    for fixture in fixtures() {
        for at_rest in [AtRest::None, AtRest::Gocryptfs] {
            let Some(server) = start(&fixture, at_rest, &[]) else { continue };
            let times = server.time_syncs().unwrap().unwrap();
            assert!(times.p50_ns > 1_000, "{:?} {at_rest}: {times:?}", fixture.build);
            assert!(
                times.p99_ns.is_none_or(|p99| p99 >= times.p50_ns),
                "{:?} {at_rest}: {times:?}",
                fixture.build
            );
            // It leaves no file and can be repeated.
            server.time_syncs().unwrap();
        }
    }
}
