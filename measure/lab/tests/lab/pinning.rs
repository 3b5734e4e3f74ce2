//! Servers with CPU affinity.

use ciphertoll_host::processors::split_processors;
use ciphertoll_lab::Tables;
use ciphertoll_model::{Auth, Engine};
use ciphertoll_testing::not_for_all;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::common::QueryText;
use crate::fixture::{Fixture, Way, connect};

fn processors_of(pid: i32) -> Vec<u16> {
    let set = sched_getaffinity(Pid::from_raw(pid)).expect("a process of ours");
    let all = 0..CpuSet::count() as u16;
    all.filter(|&processor| set.is_set(usize::from(processor)).unwrap_or(false)).collect()
}

#[test]
fn all_processes_of_a_pinned_server_have_its_affinity() {
    let Some(apart) = split_processors() else { return not_for_all("there is one processor only") };
    for fixture in Engine::SQL.into_iter().flat_map(Fixture::all) {
        let server = fixture.start(&Tables::default(), Some(apart.server.clone())).unwrap();
        assert_eq!(processors_of(server.pid()), apart.server);
        if server.engine() == Engine::Postgres {
            let default = Auth::default_of(Engine::Postgres);
            let mut client = connect(&server, default, Way::Unix).unwrap();
            let backend = client.query_text("SELECT pg_backend_pid()").unwrap().unwrap();
            assert_eq!(processors_of(backend.parse().unwrap()), apart.server);
        }
        drop(server);
        let server = fixture.start(&Tables::default(), None).unwrap();
        assert_eq!(processors_of(server.pid()), processors_of(std::process::id().cast_signed()));
    }
}
