//! What a person is told: what is wrong, and what is nearest.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use ciphertoll_model::{AtRest, Auth, Clients, Ctx, Path, Scale, ScaleLevel, ServerLevel, Spec, Workload};

#[track_caller]
fn tells<T: FromStr<Err: Display> + Debug>(text: &str, expected: &str) {
    match text.parse::<T>() {
        Ok(level) => panic!("{text:?} was taken as {level:?}"),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}

#[test]
fn of_paths() {
    tells::<Path>("plian", "unknown path \"plian\"; did you mean \"plain\"?");
    tells::<Path>(
        "PLAIN",
        "unknown path \"PLAIN\"; it is one of: plain, unix, tls1.x[-KEY] (KEY p256, p384, ed25519, mldsa44, mldsa65, rsaBITS), ssh-CIPHER, openvpn-CIPHER, wireguard, stunnel, proxy, pgbouncer, odyssey, proxysql, mysqlrouter",
    );
    tells::<Path>("unxi", "unknown path \"unxi\"; did you mean \"unix\"?");
    tells::<Path>("tls1.3-p265", "unknown path \"tls1.3-p265\"; did you mean \"tls1.3-p256\"?");
    tells::<Path>("tls13-p256", "unknown path \"tls13-p256\"; did you mean \"tls1.3-p256\"?");
    tells::<Path>("tls1.2-rsa", "unknown path \"tls1.2-rsa\"; did you mean \"tls1.2-rsa4096\"?");
    tells::<Path>(
        "ipsec",
        "unknown path \"ipsec\"; it is one of: plain, unix, tls1.x[-KEY] (KEY p256, p384, ed25519, mldsa44, mldsa65, rsaBITS), ssh-CIPHER, openvpn-CIPHER, wireguard, stunnel, proxy, pgbouncer, odyssey, proxysql, mysqlrouter",
    );
    tells::<Path>(
        "",
        "unknown path \"\"; it is one of: plain, unix, tls1.x[-KEY] (KEY p256, p384, ed25519, mldsa44, mldsa65, rsaBITS), ssh-CIPHER, openvpn-CIPHER, wireguard, stunnel, proxy, pgbouncer, odyssey, proxysql, mysqlrouter",
    );
    tells::<Path>("ssh-aes256", "unknown path \"ssh-aes256\"; did you mean \"ssh-aes256-gcm\"?");
    // Of levels that are equally close, the strongest.
    tells::<Path>("tls1.4-p256", "unknown path \"tls1.4-p256\"; did you mean \"tls1.3-p256\"?");
    tells::<Path>("tls-p256", "unknown path \"tls-p256\"; did you mean \"tls1.3-p256\"?");
    tells::<Path>("tls1.3-rsa", "unknown path \"tls1.3-rsa\"; did you mean \"tls1.3-rsa4096\"?");
    tells::<Path>("openvpn", "unknown path \"openvpn\"; did you mean \"openvpn-aes256-gcm\"?");
    tells::<Auth>("scram", "unknown auth \"scram\"; did you mean \"scram-4096\"?");
    tells::<AtRest>("n", "unknown at-rest \"n\"; did you mean \"native\"?");
    tells::<Path>("stunnel+N", "path \"stunnel\" takes no modifier \"+N\"");
    tells::<Path>("pgbounce", "unknown path \"pgbounce\"; did you mean \"pgbouncer\"?");
    tells::<Path>("proxy+front=udp", "unknown front \"udp\"; it is one of: unix, tcp");
    tells::<Path>("proxy+mode=sesion", "unknown mode \"sesion\"; did you mean \"session\"?");
    tells::<Path>(
        "proxysql+mode=statement",
        "unknown mode \"statement\"; it is one of: session, transaction",
    );
    for tls in ["1.3", "1.3-p265", "1.3-p256-p256", "", "1.3-p256+resume"] {
        let first = tls.split('+').next().unwrap_or_default();
        let resumes = tls.ends_with("resume");
        let expected = if resumes {
            "path \"pgbouncer\" takes no modifier \"+resume\"".to_owned()
        } else {
            format!(
                "path \"+tls={first}\" is out of range: a version and a key as in a path's name, such as +tls=1.3-rsa2048"
            )
        };
        tells::<Path>(&format!("pgbouncer+tls={tls}"), &expected);
    }
    tells::<Path>("tls1.3-p256+resum", "path \"tls1.3-p256\" takes no modifier \"+resum\"");
    tells::<Path>("plian+x", "unknown path \"plian\"; did you mean \"plain\"?");
}

#[test]
fn of_names() {
    tells::<Ctx>("per-conect", "unknown ctx \"per-conect\"; did you mean \"per-connect\"?");
    tells::<Ctx>("share", "unknown ctx \"share\"; did you mean \"shared\"?");
    tells::<Workload>("conect", "unknown workload \"conect\"; did you mean \"connect\"?");
    tells::<Workload>("point-selct", "unknown workload \"point-selct\"; did you mean \"point-select\"?");
    tells::<Workload>("find-on", "unknown workload \"find-on\"; did you mean \"find-one\"?");
    tells::<Workload>(
        "hammerdb",
        "unknown workload \"hammerdb\"; it is one of: connect, connect-query, first-query, point-select, select-only, tpcb-like, oltp-read-only, oltp-read-write, bulk-read, find-one, connect-find-any, first-find-any, find-any, ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-e, ycsb-f, query",
    );
}

#[test]
fn of_servers() {
    tells::<ServerLevel>("maria", "unknown server \"maria\"; did you mean \"mariadb\"?");
    tells::<ServerLevel>("postgre", "unknown server \"postgre\"; did you mean \"postgres\"?");
    tells::<ServerLevel>(
        "oracle",
        "unknown server \"oracle\"; it is one of: mariadb, mysql, postgres, mongodb, ferretdb",
    );
    tells::<ServerLevel>(
        "mariadb-ten",
        "server \"mariadb-ten\" is out of range: a version such as 10.11 after -",
    );
    tells::<ServerLevel>("mariadb=", "server \"mariadb=\" is out of range: a directory after =");
    for text in [":mariadb", "a b:mariadb", "a/b:mariadb"] {
        let expected =
            format!("server \"{text}\" is out of range: a label of letters, digits, '-', '_' and '.'");
        tells::<ServerLevel>(text, &expected);
    }
}

#[test]
fn of_numbers() {
    for text in ["0", "10001", "-1", "1.5", "many", ""] {
        let expected = format!("clients \"{text}\" is out of range: a whole number from 1 to 10000");
        tells::<Clients>(text, &expected);
    }
    for text in ["0", "1000000001", "0.9cash"] {
        let expected = format!("scale \"{text}\" is out of range: a number of rows from 1 to 1000000000");
        tells::<Scale>(text, &expected);
        let expected = format!("{expected}, or a size such as 0.5cache or 1.2mem");
        tells::<ScaleLevel>(text, &expected);
    }
    for text in ["0cache", "halfcache", "1001mem", "0.00001cache"] {
        let expected = format!(
            "scale \"{text}\" is out of range: 0.0001 to 1000 times the server's buffers or the memory, such as \
             0.5cache or 1.2mem"
        );
        tells::<ScaleLevel>(text, &expected);
    }
}

#[track_caller]
fn toml_tells(text: &str, expected: &str) {
    assert_eq!(Spec::from_toml(text).unwrap_err().to_string(), expected);
}

#[test]
fn of_toml() {
    toml_tells("", "line 1: missing field `grid`");
    toml_tells("grid = []", "nothing to measure: no [[grid]]");
    toml_tells("[[grid]]\npath = []", "no level given for path");
    toml_tells("[[grid]]\npath = [\"plian\"]", "line 2: unknown path \"plian\"; did you mean \"plain\"?");
    toml_tells(
        "[[grid]]\nclients = [1, 30000]",
        "line 2: clients \"30000\" is out of range: a whole number from 1 to 10000",
    );
    toml_tells("blocks = 31\n[[grid]]", "blocks must be 1 to 30, not 31");
    toml_tells("blocks = 0\n[[grid]]", "blocks must be 1 to 30, not 0");
}

#[test]
fn of_servers_with_one_name() {
    toml_tells(
        "[[grid]]\nserver = [\"mariadb\", \"mariadb=/opt/x\"]",
        "servers \"mariadb\" and \"mariadb=/opt/x\" would both be called \"mariadb\"; \
         give them labels, such as a:mariadb=/opt/x",
    );
    toml_tells(
        "[[grid]]\nserver = [\"a:mariadb=/x\"]\n[[grid]]\nserver = [\"a:mariadb=/y\"]",
        "servers \"a:mariadb=/x\" and \"a:mariadb=/y\" would both be called \"a\"; \
         give them labels, such as b:mariadb=/y",
    );
    Spec::from_toml("[[grid]]\nserver = [\"mariadb\", \"a:mariadb=/opt/x\", \"mariadb\"]").unwrap();
}
