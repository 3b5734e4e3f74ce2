//! Group Replication: the group elects its primary, and the sidecar follows.

use std::time::Instant;

use tempfile::TempDir;

use super::Case;
use super::failover::standing;
use super::fixture::{Fixture, one};
use super::pair::{Member, url_of};
use crate::cluster::free_port;
use crate::ledger::Ledger;
use crate::operations::await_that;

pub(crate) const CASES: [Case; 1] = [("the primary that a replication group elects is used", elected)];

const MEMBERS: usize = 3;
/// Of the group.
const NAME: &str = "5b0c1d6e-8b5c-4f0e-9d1c-2f1e3a4b5c6d";

struct Group {
    // Dropped in this order.
    members: Vec<Member>,
    _directory: TempDir,
}

impl Group {
    /// Members with an empty table `numbered`; the first one is the primary.
    fn start(fixture: &Fixture) -> Self {
        let directory = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a directory");
        let seeds: Vec<String> = (0..MEMBERS).map(|_| format!("127.0.0.1:{}", free_port())).collect();
        let start = |at: usize| {
            let options = [
                format!("--server-id={}", at + 1),
                "--gtid-mode=ON".to_owned(),
                "--enforce-gtid-consistency=ON".to_owned(),
                "--report-host=127.0.0.1".to_owned(),
                "--plugin-load-add=group_replication.so".to_owned(),
                format!("--loose-group-replication-group-name={NAME}"),
                format!("--loose-group-replication-local-address={}", seeds[at]),
                format!("--loose-group-replication-group-seeds={}", seeds.join(",")),
                "--loose-group-replication-start-on-boot=OFF".to_owned(),
                "--loose-group-replication-recovery-get-public-key=ON".to_owned(),
                "--loose-group-replication-member-expel-timeout=0".to_owned(),
            ];
            Member::start(
                fixture,
                &directory.path().join(format!("member{at}")),
                "127.0.0.1".to_owned(),
                &options,
            )
        };
        let mut members: Vec<Member> = (0..MEMBERS).map(start).collect();
        for (at, member) in members.iter_mut().enumerate() {
            member.join(fixture, at == 0);
        }
        Self { members, _directory: directory }
    }
}

impl Member {
    /// All members have made the same tables and accounts, which are no changes of the group's.
    fn join(&mut self, fixture: &Fixture, is_first: bool) {
        let user = fixture.user();
        for sql in [
            "ALTER TABLE numbered ADD PRIMARY KEY (writer, number)",
            &format!("GRANT SELECT ON performance_schema.replication_group_members TO '{user}'@'%'"),
            "CREATE USER replicates@'%' IDENTIFIED BY 'replicates'",
            "GRANT REPLICATION SLAVE, GROUP_REPLICATION_STREAM, CONNECTION_ADMIN, BACKUP_ADMIN ON *.* TO replicates@'%'",
            "RESET MASTER",
            "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'replicates', SOURCE_PASSWORD = 'replicates' \
             FOR CHANNEL 'group_replication_recovery'",
            &format!("SET GLOBAL group_replication_bootstrap_group = {is_first}"),
            "START GROUP_REPLICATION",
            "SET GLOBAL group_replication_bootstrap_group = OFF",
        ] {
            self.execute(sql);
        }
        let state = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
                     WHERE MEMBER_ID = @@server_uuid";
        await_that("it is a member", || one(&mut self.control, state) == "ONLINE");
    }
}

fn elected(fixture: &mut Fixture) {
    let mut group = Group::start(fixture);
    let (url, password) = (url_of(fixture, &group.members, "read-write"), fixture.password());
    let arguments = ["--health-time", "1s", "--pool-size", "8", "--admin", "tcp:127.0.0.1:0"];
    let proxy = fixture.proxy_to(&url, password, &arguments);
    let [first, second, third] = &mut group.members[..] else { panic!("three members") };
    let ledger = Ledger::written_during(
        || proxy.try_client(),
        |ledger| {
            await_that("the others are no primaries", || standing(&proxy, 2) == "unfit");
            // Planned: the group waits for transactions, and then the first member is read-only.
            let uuid = one(&mut second.control, "SELECT @@server_uuid");
            one(&mut second.control, &format!("SELECT group_replication_set_as_primary('{uuid}')"));
            ledger.await_first("the second member became the primary", Instant::now());
            ledger.await_more("all writers are served");
            assert_eq!(standing(&proxy, 1), "usable");
            // Not planned: the others notice it after some seconds.
            second.kill();
            let other = |member: &mut Member| one(&mut member.control, "SELECT @@super_read_only") == "0";
            await_that("the group elects a primary", || other(first) || other(third));
            ledger.await_first("the election", Instant::now());
            ledger.await_more("all writers are served again");
        },
    );
    let rows = "SELECT CONCAT(writer, ' ', number) FROM numbered";
    let primary = if standing(&proxy, 0) == "usable" { first } else { third };
    ledger.check(primary.control.query(rows).expect("rows"));
}
