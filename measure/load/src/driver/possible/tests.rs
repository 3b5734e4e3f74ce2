use std::fmt::Debug;
use std::str::FromStr;

use ciphertoll_model::ServerLevel;

use super::*;
use crate::driver::find;

/// `cell`: engine, workload, path, authentication, pace, and context (`-` without TLS).
fn reason(driver: &str, cell: &str) -> Option<String> {
    fn level<T: FromStr<Err: Debug>>(text: &str) -> T {
        text.parse().unwrap()
    }
    let [engine, workload, path, auth, pace, ctx] = cell.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{cell}")
    };
    find(driver).unwrap().impossible(&DriverRequirements {
        engine: level::<ServerLevel>(engine).engine,
        workload: level(workload),
        path: level(path),
        auth: level(auth),
        pace: level(pace),
        ctx: (ctx != "-").then(|| level(ctx)),
    })
}

#[test]
fn supported_cells_are_possible() {
    for (drivers, cell) in [
        (&["libmariadb", "sysbench"][..], "mariadb point-select plain native closed -"),
        (&["libmariadb", "sysbench"], "mysql point-select plain caching-sha2 closed -"),
        (&["libmariadb"], "mariadb bulk-read+bytes=300 plain native closed -"),
        (&["mysqlslap"], "mariadb connect-query plain native closed -"),
        (&["libpq", "pgbench", "sysbench"], "postgres point-select plain scram-4096 closed -"),
        (
            &["libpq", "pgbench", "sysbench"],
            "postgres point-select tls1.3-p256 scram-4096 closed per-connect",
        ),
        (&["libpq"], "postgres point-select tls1.3-p256+direct scram-4096 closed per-connect"),
        (&["pymongo"], "ferretdb find-one tls1.3-p256 scram-15000 closed per-connect"),
        (&["pymongo"], "ferretdb connect tls1.3-p256 scram-15000 closed per-connect"),
        (&["pymongo"], "ferretdb connect-query tls1.3-p256 scram-15000 closed per-connect"),
        (&["pymongo"], "ferretdb first-query tls1.3-p256 scram-15000 closed per-connect"),
    ] {
        for driver in drivers {
            assert_eq!(reason(driver, cell), None, "{driver} {cell}");
        }
    }
}

#[test]
fn unsupported_cells_have_a_reason() {
    for (driver, cell, words) in [
        ("libpq", "mariadb point-select plain native closed -", "driver libpq cannot do server mariadb"),
        ("mysqlslap", "mariadb point-select plain native closed -", "which would read one row"),
        ("sysbench", "mariadb point-select tls1.2-p256 native closed -", "does not verify the server"),
        ("sysbench", "mariadb bulk-read plain native closed -", "cannot do workload bulk-read+bytes=16k"),
        ("libmariadb", "mariadb point-select plain parsec closed -", "since version 3.4"),
        ("libmariadb", "mariadb point-select plain native 100/s -", "cannot do pace 100/s"),
        ("libmariadb", "mariadb point-select plain native closed shared", "TLS context per connect"),
        (
            "libmariadb",
            "mariadb point-select tls1.3-p256+client=rustls native closed -",
            "cannot do path tls1.3-p256+client=rustls",
        ),
        ("pgbench", "postgres point-select tls1.3-p256+direct trust closed -", "silently use negotiated TLS"),
        ("pymongo", "ferretdb ycsb-a plain scram-15000 closed -", "it does find-one"),
        ("pymongo", "postgres find-one plain scram-15000 closed -", "cannot do server postgres"),
        ("pymongo", "ferretdb find-one unix scram-15000 closed -", "connects by TCP"),
        ("pymongo", "ferretdb find-one plain scram-15000 closed shared", "with each client"),
        ("pymongo", "ferretdb find-one plain scram-15000 100/s -", "cannot do pace 100/s"),
        ("pymongo", "ferretdb find-one plain md5 closed -", "cannot do auth md5"),
    ] {
        let said = reason(driver, cell).unwrap();
        assert!(said.contains(words), "{said}");
    }
}
