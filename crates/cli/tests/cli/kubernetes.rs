//! Load hosts that are pods, on the Kubernetes that `scripts/test-kubernetes` starts; skipped without one.

mod server;

use std::process::{Command, Output};

use ciphertoll_skip::not_for_all;
use nix::sys::signal::Signal;
use serde_json::Value;

use self::server::PodServer;
use crate::support::{Answer, Session, ciphertoll, is, items, one_document, text, until};

/// What `scripts/kubernetes` tells its command.
const GATEWAY: &str = "KUBERNETES_GATEWAY";
const IMAGE: &str = "docker.io/library/ciphertoll:test";
/// A context of a user without rights.
const NOBODY: &str = "nobody";
const ROLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubernetes-role.yaml");

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
            until(&format!("no {kind} in {}", self.namespace), || self.names(kind).is_empty().then_some(()));
        }
    }

    fn hosts(&self, context: &str, modifiers: &str) -> String {
        format!("k8s:{context}/{}+image={IMAGE}{modifiers}", self.namespace)
    }
}

fn kubectl(arguments: &[&str]) -> Result<String, String> {
    let Output { status, stdout, stderr } = Command::new("kubectl").args(arguments).output().expect("kubectl starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if status.success() { Ok(stdout.into_owned()) } else { Err(stderr.into_owned()) }
}
