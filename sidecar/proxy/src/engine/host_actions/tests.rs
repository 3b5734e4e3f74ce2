use ciphertoll_wire::{mysql, session};

use super::*;

#[test]
fn a_host_that_has_too_many_connections_works() {
    let server = |code, sql_state: &str| {
        let (sql_state, message) = (sql_state.to_owned(), String::new());
        Error::Protocol(session::Error::MySql(mysql::Error::Server { code, sql_state, message }))
    };
    // A wrong password, and too many connections, which has the class of connection failures.
    assert!(is_final(&server(1045, "28000")) && is_final(&server(1040, "08004")));
    // A shutdown, a member without a cluster, and other failures of the connection.
    for (code, sql_state) in [(1053, "08S01"), (1047, "08S01"), (1158, "08S01")] {
        assert!(!is_final(&server(code, sql_state)), "{code}");
    }
}
