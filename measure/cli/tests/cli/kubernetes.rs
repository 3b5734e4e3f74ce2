//! Load hosts that are pods, on the Kubernetes that `scripts/test-kubernetes` starts; skipped without one.

mod server;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ciphertoll_testing::not_for_all;
use nix::sys::signal::Signal;
use serde_json::Value;

use self::server::{PASSWORD, PASSWORD_VARIABLE, PodServer};
use crate::support::{
    Answer, SSHD, Session, Ssh, ciphertoll, is, items, one_document, text, until, until_within,
};

/// What `scripts/kubernetes` tells its command.
const GATEWAY: &str = "KUBERNETES_GATEWAY";
/// The context of a user without rights.
const NOBODY: &str = "nobody";
const ADMIN: &str = "admin";
const ROLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubernetes-role.yaml");
/// The metrics whose verdicts must agree between runs.
const COMPARED: [&str; 2] = ["rate_per_s", "latency_ns_p50"];
/// Load hosts by ssh.
const HOSTS: [&str; 4] = ["load1", "load2", "load3", "load4"];
/// Until Kubernetes has noticed that a pod is lost and has started another one.
const CONVERGENCE: Duration = Duration::from_mins(2);

/// A namespace of the cluster, and a server that its pods can reach.
struct Cluster {
    namespace: &'static str,
    server: PodServer,
    runs: tempfile::TempDir,
}

impl Cluster {
    /// None if no Kubernetes was started.
    fn find(namespace: &'static str) -> Option<Self> {
        let Ok(gateway) = std::env::var(GATEWAY) else {
            not_for_all("needs a Kubernetes, which scripts/test-kubernetes starts: make test-full");
            return None;
        };
        kubectl(&["create", "namespace", namespace]).expect("a namespace");
        // The API server refuses pods here that have more rights than the strictest standard permits.
        let standard = "pod-security.kubernetes.io/enforce=restricted";
        kubectl(&["label", "namespace", namespace, standard]).expect("a label");
        let runs = tempfile::tempdir().expect("a directory");
        Some(Self { namespace, server: PodServer::start(&gateway), runs })
    }

    /// Gives the user without rights the role of the documentation.
    fn grant_role(&self) {
        self.kubectl(&["create", "--filename", ROLE]).expect("the role");
        let binding = ["create", "rolebinding", "load", "--role=ciphertoll-load", "--user=nobody"];
        self.kubectl(&binding).expect("a role binding");
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        kubectl(&[&["--namespace", self.namespace], arguments].concat())
    }

    /// The names of the objects of this kind.
    fn names(&self, kind: &str) -> Vec<String> {
        let names = self.kubectl(&["get", kind, "--output=name"]).expect("a list");
        names.lines().map(ToOwned::to_owned).collect()
    }

    /// Waits until the Job and its pods are gone.
    #[track_caller]
    fn assert_clean(&self) {
        for kind in ["jobs", "pods"] {
            until_within(CONVERGENCE, &format!("no {kind} in {}", self.namespace), || {
                self.names(kind).is_empty().then_some(())
            });
        }
    }

    fn hosts(&self, context: &str, modifiers: &str) -> String {
        format!("k8s:{context}/{}{modifiers}", self.namespace)
    }

    fn run(&self, hosts: &[&str], arguments: &[&str]) -> Answer {
        answer(self.command(hosts, arguments))
    }

    /// A run on four hosts by ssh. Each connection has an sshd of its own, which needs no port.
    fn run_by_ssh(&self, arguments: &[&str]) -> Answer {
        let place = tempfile::tempdir().expect("a directory");
        let ssh = Ssh::new(place.path());
        let config = ssh.sshd_config(&place.path().join("home"), "");
        let sshd = format!(" ProxyCommand {SSHD} -i -f {}", text(&config));
        let bin = ssh.client(&HOSTS.map(|name| (name.to_owned(), sshd.clone())));
        let mut command = self.command(&[&format!("ssh:{}", HOSTS.join(","))], arguments);
        let own = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{own}", text(&bin)));
        answer(command)
    }

    fn command(&self, hosts: &[&str], arguments: &[&str]) -> Command {
        let url = self.server.url();
        let fixed = ["run", "--url", &url, "--json", "-q", "--run-dir", text(self.runs.path())];
        let hosts = hosts.iter().flat_map(|hosts| ["--load-hosts", hosts]);
        let mut command =
            ciphertoll(&fixed.into_iter().chain(hosts).chain(arguments.iter().copied()).collect::<Vec<_>>());
        command.env(PASSWORD_VARIABLE, PASSWORD).stdin(Stdio::null());
        command
    }

    /// A run with long trials.
    fn session(&self, modifiers: &str) -> Session {
        let (url, hosts) = (self.server.url_with_password(), self.hosts(ADMIN, modifiers));
        let load = ["--workload", "connect", "--clients", "4", "--max-rate", "1000"];
        let trials = ["--blocks", "6", "--trial-time", "2s", "--url", &url, "--load-hosts", &hosts];
        Session::start(self.runs.path(), &[&load[..], &trials].concat())
    }
}

fn answer(mut command: Command) -> Answer {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
    Answer { code: status.code(), stdout, stderr }
}

/// The toll on a metric, and whether it differs from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Verdict {
    toll: f64,
    differs: bool,
}

impl Verdict {
    fn contradicts(self, other: Self) -> bool {
        self.differs && other.differs && (self.toll > 1.0) != (other.toll > 1.0)
    }
}

/// The verdicts of a report, by cell and metric.
fn verdicts(report: &Value) -> BTreeMap<(String, String), Verdict> {
    let of_cell = |cell: &Value| {
        let id = cell["id"].as_str().expect("an id").to_owned();
        let tolls = cell["toll"].as_object().into_iter().flatten();
        let verdict = |(metric, toll): (&String, &Value)| {
            let differs = toll["verdict"]["kind"] == "differs";
            Some(((id.clone(), metric.clone()), Verdict { toll: toll["value"].as_f64()?, differs }))
        };
        tolls.filter_map(verdict).collect::<Vec<_>>()
    };
    items(report, "cells").iter().flat_map(of_cell).collect()
}

/// Agents that run in pods: processes of pods are visible here.
fn agents() -> usize {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let command = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    processes.map(command).filter(|command| command.starts_with(b"ciphertoll\0__host\0")).count()
}

fn kubectl(arguments: &[&str]) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        Command::new("kubectl").args(arguments).output().expect("kubectl starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if status.success() { Ok(stdout.into_owned()) } else { Err(stderr.into_owned()) }
}

#[test]
fn four_pods_give_the_same_verdicts_as_four_hosts_by_ssh() {
    let Some(cluster) = Cluster::find("verdicts") else { return };
    cluster.grant_role();
    let load = ["--workload", "connect,point-select", "--clients", "4", "--max-rate", "100000", "--prepare"];
    let trials = ["--blocks", "8", "--trial-time", "500ms"];
    let arguments = [&load[..], &trials].concat();
    let pods = cluster.run(&[&cluster.hosts(NOBODY, "+pods=4")], &arguments);
    assert_eq!(pods.code, Some(0), "{pods:?}");
    cluster.assert_clean();
    let by_ssh = cluster.run_by_ssh(&arguments);
    assert_eq!(by_ssh.code, Some(0), "{by_ssh:?}");
    let [pods, by_ssh] = [pods, by_ssh].map(|answer| one_document(&answer.stdout));
    let [in_pods, by_ssh] = [&pods, &by_ssh].map(verdicts);
    // Other metrics depend on the path to the server, and some are absent on a busy machine.
    for (which, verdict) in in_pods.iter().filter(|((_, metric), _)| COMPARED.contains(&metric.as_str())) {
        assert!(!verdict.contradicts(by_ssh[which]), "{which:?}: {verdict:?}, {:?}", by_ssh[which]);
    }
    let connects = in_pods.keys().find(|(cell, metric)| cell.contains("/connect/") && metric == "rate_per_s");
    for verdicts in [&in_pods, &by_ssh] {
        let verdict = verdicts[connects.expect("a verdict on connects")];
        assert!(verdict.differs && verdict.toll < 1.0, "TLS costs connects: {verdict:?}");
    }
    let hosts = items(&pods, "load_hosts");
    assert_eq!(hosts.len(), 4, "{pods}");
    assert!(hosts.iter().all(|host| host["node"] == "node-1"), "{hosts:?}");
}

#[test]
fn without_rights_and_without_an_image_one_line_says_why() {
    let Some(cluster) = Cluster::find("refusals") else { return };
    let arguments = ["--workload", "connect", "--clients", "4", "--size", "smoke"];
    let refused = cluster.run(&[&cluster.hosts(NOBODY, "")], &arguments);
    assert_eq!(refused.code, Some(9), "{refused:?}");
    let line = refused.one_line();
    assert!(line.contains("kubectl cannot create a Job in namespace refusals of context nobody"), "{line}");
    assert!(line.contains("User \"nobody\" cannot create resource \"jobs\""), "{line}");
    let missing = cluster.run(&[&cluster.hosts(ADMIN, "+pods=2+image=localhost/none:1")], &arguments);
    assert_eq!(missing.code, Some(9), "{missing:?}");
    let line = missing.one_line();
    assert!(line.contains("a load host in namespace refusals of context admin cannot start: pod "), "{line}");
    assert!(line.contains("ErrImageNeverPull"), "{line}");
    cluster.assert_clean();
}

#[test]
fn the_job_of_a_killed_run_is_deleted_by_the_next_one() {
    let Some(cluster) = Cluster::find("killed") else { return };
    let mut session = cluster.session("");
    session.wait_for("a trial", |event| is(event, "trial_started"));
    let objects =
        cluster.kubectl(&["get", "jobs,pods,secrets,configmaps", "--output=json"]).expect("objects");
    assert!(!objects.contains(PASSWORD) && objects.contains("ciphertoll/run"), "{objects}");
    // A child that an agent has just forked counts until it has become a load process.
    until("four agents", || (agents() == 4).then_some(()));
    session.signal(Signal::SIGKILL);
    session.finish();
    until("no agents", || (agents() == 0).then_some(()));
    let left = cluster.names("jobs");
    assert_eq!(left.len(), 1, "{left:?}");
    let mut resume = ciphertoll(&["resume", "--json", "--run-dir", text(cluster.runs.path())]);
    resume.env(PASSWORD_VARIABLE, PASSWORD).stdin(Stdio::null());
    let resumed = answer(resume);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.stderr.contains(" processes, 1 Kubernetes Jobs"), "{}", resumed.stderr);
    cluster.assert_clean();
}

#[test]
fn a_lost_pod_voids_its_trial_and_the_run_continues_with_another_pod() {
    let Some(cluster) = Cluster::find("lost") else { return };
    let mut session = cluster.session("");
    let voided = loop {
        session.wait_for("a trial", |event| is(event, "trial_started") && event["block"] != 0);
        let pod = cluster.names("pods").pop().expect("a pod");
        cluster.kubectl(&["delete", &pod, "--wait=false"]).expect("a deletion");
        let end =
            session.wait_for("its end", |event| is(event, "trial_finished") || is(event, "trial_voided"));
        if is(&end, "trial_voided") {
            break end;
        }
        // The pod was lost after the trial. The next one has another pod.
        until_within(CONVERGENCE, "four pods", || (cluster.names("pods").len() == 4).then_some(()));
    };
    assert!(voided.to_string().contains("host_lost"), "{voided}");
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    cluster.assert_clean();
}

#[test]
fn ctrl_c_while_there_is_no_room_for_the_pods_deletes_the_job() {
    let Some(cluster) = Cluster::find("full") else { return };
    let mut session = cluster.session("+pods=30");
    let is_full = |event: &Value| {
        let what = event["what"].as_str().unwrap_or_default();
        what.contains(" of 30 pods are ready; pod ciphertoll-")
            && what.contains("Unschedulable: 0/1 nodes are available")
    };
    session.wait_for("the scheduler's reason", is_full);
    session.signal(Signal::SIGINT);
    let finished = session.finish();
    assert_eq!(finished.code, Some(130), "{:?}", finished.told());
    cluster.assert_clean();
}

#[test]
fn a_pod_without_an_agent_ends_by_itself() {
    let Some(cluster) = Cluster::find("idle") else { return };
    let image = format!("--image=localhost/ciphertoll:{}", env!("CARGO_PKG_VERSION"));
    let overrides = r#"--overrides={"spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":65532,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"idle","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}"#;
    let pod = ["run", "idle", &image, "--image-pull-policy=Never", "--restart=Never", overrides];
    let command = ["--override-type=strategic", "--command", "--", "ciphertoll", "__pod", "1"];
    cluster.kubectl(&[&pod[..], &command].concat()).expect("a pod");
    until("the end of the pod", || {
        let phase =
            cluster.kubectl(&["get", "pod", "idle", "--output=jsonpath={.status.phase}"]).expect("a pod");
        (phase == "Succeeded").then_some(())
    });
}
