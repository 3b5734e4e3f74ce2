use super::*;

fn of(path: &str) -> FileClass {
    FileClass::of(path.as_bytes())
}

fn relation_of(tablespace: u32, database: u32, relation: u32) -> FileClass {
    FileClass::Relation { tablespace, database, relation, fork: Fork::Main, backend: None, segment: 0 }
}

#[test]
fn relations() {
    assert_eq!(of("base/5/16384"), relation_of(1663, 5, 16384));
    assert_eq!(of("./base//5/16384"), relation_of(1663, 5, 16384));
    assert_eq!(of("global/1262"), relation_of(1664, 0, 1262));
    assert_eq!(of("pg_tblspc/16400/PG_15_202209061/5/16401"), relation_of(16400, 5, 16401));
    let FileClass::Relation { fork, segment, backend, .. } = of("base/5/t3_16384_vm.2") else { panic!() };
    assert_eq!((fork, segment, backend), (Fork::Visibility, 2, Some(3)));
    assert_eq!(of("base/5/16384.3").first_page(), 3 * SEGMENT_PAGES);
}

#[test]
fn wal_outside_the_data_directory() {
    for name in ["000000010000000000000001", "/archive/0000000200000000000000FF.partial"] {
        assert_eq!(FileClass::of_wal_elsewhere(name.as_bytes()), Some(FileClass::Wal), "{name}");
    }
    for name in
        ["/archive/RECOVERYXLOG", "xlogtemp.7", "/a/00000001.history", "/a/000000010000000000000001.gz", ""]
    {
        assert_eq!(FileClass::of_wal_elsewhere(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn other_encrypted_files() {
    assert_eq!(of("global/pg_control"), FileClass::Control);
    assert_eq!(of("PG_VERSION"), FileClass::Version);
    assert_eq!(of("global/pg_filenode.map"), FileClass::Map { tablespace: 1664, database: 0 });
    assert_eq!(of("base/5/pg_filenode.map.tmp"), FileClass::Map { tablespace: 1663, database: 5 });
    for wal in ["000000010000000000000001", "0000000200000000000000FF.partial", "RECOVERYXLOG"] {
        assert_eq!(of(&format!("pg_wal/{wal}")), FileClass::Wal);
    }
    assert_eq!(of("pg_wal/xlogtemp.123"), FileClass::XlogTemp);
    assert_eq!(of("pg_xact/0000"), FileClass::Slru { directory: SlruDirectory::Transactions, segment: 0 });
    assert_eq!(
        of("pg_multixact/members/00FF"),
        FileClass::Slru { directory: SlruDirectory::MultixactMembers, segment: 255 }
    );
    for temporary in [
        "base/pgsql_tmp/pgsql_tmp12.0",
        "base/pgsql_tmp/pgsql_tmp12.0.fileset/i1of2.p0.0",
        "pg_tblspc/16400/PG_15_202209061/pgsql_tmp/pgsql_tmp12.1",
        "pg_tblspc/16400/PG_15_202209061/pgsql_tmp/a/b/c/d",
    ] {
        assert!(matches!(of(temporary), FileClass::Temporary(_)), "{temporary}");
    }
    for state in [
        "pg_twophase/000002E7",
        "pg_replslot/slot/state",
        "pg_replslot/slot/xid-740-lsn-0-1000000.spill",
        "pg_logical/snapshots/0-15D8.snap",
        "pg_logical/mappings/map-4-4eb-1_60DE1E08-5376b5-537c6b",
        "pg_logical/replorigin_checkpoint",
    ] {
        assert!(matches!(of(state), FileClass::State(_)), "{state}");
    }
}

#[test]
fn unencrypted_files() {
    for path in [
        "",
        "postgresql.conf",
        "postmaster.pid",
        "global/pg_internal.init",
        "global/PG_VERSION",
        "base/5/pg_control",
        "base/5/PG_VERSION",
        "base/5/pg_internal.init.77",
        "base/5/16384_other",
        "base/5/99999999999",
        "base/x/16384",
        "pg_stat/pgstat.stat",
        "pg_wal/00000002.history",
        "pg_wal/000000010000000000000001.00000028.backup",
        "pg_wal/archive_status/000000010000000000000001.ready",
        "pg_wal/00000001000000000000000a",
        "pg_xact",
        "a/b/c/d/e/f/g/h",
    ] {
        assert_eq!(of(path), FileClass::Unencrypted, "{path}");
    }
}

#[test]
fn a_tablespace_directory_is_recognised_by_its_oid() {
    let elsewhere = |path: &str| FileClass::path_of_tablespace_elsewhere(path.as_bytes());
    for name in ["16384_vm", "PG_VERSION", "unknown"] {
        let there = format!("pg_tblspc/16400/PG_15_202209061/5/{name}");
        assert_eq!(elsewhere(&format!("/srv/16400/PG_15_202209061/5/{name}")), Some(there.into_bytes()));
    }
    for other in
        ["", "16384", "/srv/space/PG_15_202209061/5/16384", "/16400/other/5/16384", "/srv/16400/PG_15/x/1"]
    {
        assert_eq!(elsewhere(other), None, "{other}");
    }
}

#[test]
fn subjects_differ_between_keys_and_are_equal_for_segments_of_one_relation() {
    let subject = |path: &str| of(path).subject();
    let apart = [
        "base/5/16384",
        "base/5/16384_fsm",
        "base/5/16384_vm",
        "base/5/t0_16384",
        "base/5/t1_16384",
        "base/6/16384",
        "global/16384",
        "pg_tblspc/9/PG_15/5/16384",
        "base/5/pg_filenode.map",
        "pg_wal/000000010000000000000001",
        "pg_xact/0001",
        "pg_subtrans/0001",
        "base/pgsql_tmp/a",
        "pg_replslot/a/state",
        "pg_replslot/b/state",
        "global/pg_control",
        "PG_VERSION",
    ];
    for (at, path) in apart.iter().enumerate() {
        for other in &apart[at + 1..] {
            assert_ne!(subject(path), subject(other), "{path} {other}");
        }
    }
    assert_eq!(subject("base/5/16384"), subject("base/5/16384.1"));
}

#[test]
fn only_renames_that_keep_the_key_are_allowed() {
    let renamed = |from: &str, to: &str| Rename::of(from.as_bytes(), to.as_bytes());
    for (from, to) in [
        ("pg_wal/xlogtemp.9", "pg_wal/000000010000000000000002"),
        ("pg_wal/000000010000000000000001", "pg_wal/000000010000000000000007"),
        ("pg_wal/RECOVERYXLOG", "pg_wal/000000010000000000000007"),
        ("pg_wal/000000010000000000000007", "pg_wal/000000010000000000000007.partial"),
        ("pg_wal/xlogtemp.9", "pg_wal/00000002.history"),
        ("base/5/pg_filenode.map.tmp", "base/5/pg_filenode.map"),
        ("pg_replslot/a.tmp/state", "pg_replslot/a/state"),
        ("pg_replslot/a/state.tmp", "pg_replslot/a/state"),
        ("pg_replslot/a.tmp", "pg_replslot/a"),
        ("pg_logical/snapshots/0-15D8.snap.77.tmp", "pg_logical/snapshots/0-15D8.snap"),
        ("pg_logical/replorigin_checkpoint.tmp", "pg_logical/replorigin_checkpoint"),
        ("pg_stat/pgstat.tmp", "pg_stat/pgstat.stat"),
    ] {
        assert_eq!(renamed(from, to), Rename::Allowed, "{from} {to}");
    }
    for (from, to) in [
        ("base/5/16384", "base/5/16385"),
        ("base/5/16384", "base/5/16384.1"),
        ("base/5/16384", "base/5/copy"),
        ("base/5/copy", "base/5/16384"),
        ("pg_wal/000000010000000000000001", "pg_wal/00000002.history"),
        ("pg_wal/xlogtemp.9", "elsewhere"),
        ("pg_replslot/a/state", "pg_replslot/b/state"),
        ("global/pg_control", "global/copy"),
        ("global/copy", "global/pg_control"),
        ("PG_VERSION.old", "PG_VERSION"),
    ] {
        assert_eq!(renamed(from, to), Rename::Refused, "{from} {to}");
    }
}
