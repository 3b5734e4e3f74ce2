//! `kubectl`, as it is used for one Job.

use std::env;
use std::io;
use std::path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use ciphertoll_model::KubernetesHosts;
use ciphertoll_record::{KubernetesJob, LimitedOutput, RUN_LABEL, output_within};
use serde::Deserialize;

use super::manifest::{CONTAINER, DEADLINE_S, JobFields, KEPT_S, LOCAL};
use super::pods::{Pod, PodList};
use crate::agent::HOST_COMMAND;
use crate::error::KubectlError;

/// For one command of `kubectl`, including a program that gets the user's credentials.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);
const REQUEST_TIMEOUT: &str = "--request-timeout=20s";
/// Added to the Job's own deadlines: clocks of clusters differ.
const EXPIRY_SLACK_S: u64 = 3600;

/// What a creation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creation {
    /// The API server checks everything and creates nothing.
    Check,
    Real,
}

/// The Job, which may not exist yet.
#[derive(Debug)]
pub(super) struct JobClient {
    effect: KubernetesJob,
    pods: u16,
    image: String,
}

impl JobClient {
    /// A Job with a unique name, not created.
    pub(super) fn new(hosts: &KubernetesHosts) -> Result<Self, KubectlError> {
        let run = format!("{:016x}", rand::random::<u64>());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let effect = KubernetesJob {
            kubeconfig: kubeconfig(),
            context: hosts.context.clone(),
            namespace: hosts.namespace.to_string(),
            name: format!("ciphertoll-{run}"),
            run,
            expires_unix_s: now.as_secs() + DEADLINE_S + KEPT_S + EXPIRY_SLACK_S,
        };
        let own = || format!("{LOCAL}ciphertoll:{}", env!("CARGO_PKG_VERSION"));
        let image = hosts.image.clone().unwrap_or_else(own);
        let mut client = Self { effect, pods: hosts.pods, image };
        if client.effect.context.is_none() {
            client.effect.context = client.current_context()?;
        }
        Ok(client)
    }

    /// For the ledger.
    pub(super) fn effect(&self) -> &KubernetesJob {
        &self.effect
    }

    /// How many pods the Job has.
    pub(super) fn pods(&self) -> u16 {
        self.pods
    }

    pub(super) fn create(&self, creation: Creation) -> Result<(), KubectlError> {
        let KubernetesJob { name, run, .. } = &self.effect;
        let manifest = JobFields { name, run, pods: self.pods, image: &self.image }.manifest().to_string();
        let dry_run = match creation {
            Creation::Check => "--dry-run=server",
            Creation::Real => "--dry-run=none",
        };
        self.kubectl(
            "create a Job",
            &["create", "--filename=-", "--output=name", dry_run],
            manifest.as_bytes(),
        )
        .map(drop)
    }

    /// Starts an agent in `pod`, connected to stdin and stdout of this command.
    pub(super) fn agent(&self, pod: &Pod) -> Command {
        let mut command = self.effect.kubectl();
        command.args(["exec", "--stdin", "--quiet", &format!("--container={CONTAINER}"), &pod.name]);
        command.args(["--", "ciphertoll", HOST_COMMAND]);
        command
    }

    pub(super) fn pod_list(&self) -> Result<PodList, KubectlError> {
        let selector = format!("--selector={RUN_LABEL}={}", self.effect.run);
        let action = "list pods";
        let json = self.kubectl(action, &["get", "pods", &selector, "--output=json"], b"")?;
        serde_json::from_slice(&json).map_err(|error| self.error(action, &error.to_string()))
    }

    /// Why there are no pods, as the Job's last event says, if this user may read events.
    pub(super) fn complaint_about_the_job(&self) -> Option<String> {
        let about = format!(
            "--field-selector=type=Warning,involvedObject.kind=Job,involvedObject.name={}",
            self.effect.name
        );
        let json = self.kubectl("list events", &["get", "events", &about, "--output=json"], b"").ok()?;
        serde_json::from_slice::<EventList>(&json).ok()?.items.pop()?.message
    }

    fn kubectl(
        &self,
        action: &'static str,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<Vec<u8>, KubectlError> {
        let mut command = self.effect.kubectl();
        command.arg(REQUEST_TIMEOUT).args(arguments);
        let output = self.run(action, command, input)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(self.error(action, &output.complaint()))
    }

    fn run(
        &self,
        action: &'static str,
        command: Command,
        input: &[u8],
    ) -> Result<LimitedOutput, KubectlError> {
        output_within(command, input, COMMAND_LIMIT).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => KubectlError::Missing,
            _ => self.error(action, &error.to_string()),
        })
    }

    fn error(&self, action: &'static str, reason: &str) -> KubectlError {
        KubectlError::Failed { action, place: self.place(), reason: reason.to_owned() }
    }

    pub(super) fn place(&self) -> String {
        let KubernetesJob { context, namespace, .. } = &self.effect;
        let context = context.as_ref().map(|name| format!(" of context {name}")).unwrap_or_default();
        format!("namespace {namespace}{context}")
    }

    /// The user's current context, which may be another one when the Job is deleted. None in a pod, which has a service
    /// account and no kubeconfig.
    fn current_context(&self) -> Result<Option<String>, KubectlError> {
        let mut command = self.effect.kubectl();
        command.args(["config", "current-context"]);
        let output = self.run("read the current context", command, b"")?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Some(name).filter(|name| output.status.success() && !name.is_empty()))
    }
}

/// The user's KUBECONFIG, for a sweep that has another working directory.
fn kubeconfig() -> Option<String> {
    let listed = env::var_os("KUBECONFIG")?;
    let absolute = env::split_paths(&listed).map(|path| path::absolute(&path).unwrap_or(path));
    env::join_paths(absolute).ok()?.into_string().ok()
}

/// `kubectl get events -o json`, as far as it is used.
#[derive(Deserialize)]
struct EventList {
    items: Vec<JobEvent>,
}

#[derive(Deserialize)]
struct JobEvent {
    message: Option<String>,
}
