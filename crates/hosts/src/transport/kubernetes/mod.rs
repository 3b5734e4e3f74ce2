//! Load hosts that are pods: an Indexed Job, created and reached with the user's own `kubectl`.

mod manifest;
mod pods;

use std::env;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ciphertoll_model::KubernetesHosts;
use ciphertoll_record::{Effect, KubernetesJob, Ledger, RUN_LABEL, output_within};
use serde::Deserialize;

use self::manifest::{CONTAINER, DEADLINE_S, JobFields, KEPT_S, LOCAL};
use self::pods::{Pod, PodList, PodState};
use super::{Transport, Waiting};
use crate::Error;
use crate::agent::HOST_COMMAND;

/// For one command of `kubectl`, including a program that gets the user's credentials.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);
const REQUEST_TIMEOUT: &str = "--request-timeout=20s";
/// For pulling the image and starting the pods.
const START_LIMIT: Duration = Duration::from_mins(2);
/// Kubernetes replaces a lost pod after 10 s or more.
const REPLACE_LIMIT: Duration = Duration::from_mins(1);
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Added to the Job's own deadlines: clocks of clusters differ.
const EXPIRY_SLACK_S: u64 = 3600;
const NOT_CREATED: &str = "Kubernetes has not created its pod";

/// Pods of a Kubernetes cluster cannot be created or reached.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error("kubectl is not installed, but k8s: needs it")]
    NoKubectl,
    #[error("kubectl cannot {action} in {place}: {reason}")]
    Kubectl { action: &'static str, place: String, reason: String },
    #[error("a load host in {place} cannot start: {reason}")]
    Failed { place: String, reason: String },
    #[error("a load host in {place} was not ready within {seconds} s: {reason}")]
    NotReady { place: String, seconds: u64, reason: String },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Ledger(#[from] ciphertoll_record::Error),
}

/// An agent in a pod.
pub struct PodTransport {
    name: String,
    job: Arc<Job>,
    index: u16,
    pod: Pod,
    /// Whether an agent was started in this pod. If it is started again, it was lost, perhaps with its pod.
    was_started: bool,
}

impl PodTransport {
    pub(super) fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

impl Transport for PodTransport {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<Command, Error> {
        if std::mem::replace(&mut self.was_started, true) {
            self.pod = self.job.wait_for(self.index, is_interrupted)?;
        }
        Ok(self.job.command(&self.pod))
    }

    fn node(&self) -> Option<&str> {
        Some(&self.pod.node)
    }
}

/// Creates the Job and waits until all its pods are ready. The Job is deleted when the last of them is dropped.
pub(super) fn create_pods(
    hosts: &KubernetesHosts,
    ledger: &Ledger,
    waiting: &mut Waiting<'_>,
) -> Result<Vec<PodTransport>, KubernetesError> {
    let (job, pods) = Job::create(hosts, ledger, waiting)?;
    let job = Arc::new(job);
    let transport = |(index, pod)| PodTransport {
        name: format!("{}-{index}", hosts.namespace),
        job: Arc::clone(&job),
        index,
        pod,
        was_started: false,
    };
    Ok((0..).zip(pods).map(transport).collect())
}

/// The Job of one run. Dropping deletes it.
#[derive(Debug)]
struct Job {
    effect: KubernetesJob,
    pods: u16,
}

impl Job {
    /// Creates the Job and waits until all its pods are ready. Returns them in the order of their index.
    fn create(
        hosts: &KubernetesHosts,
        ledger: &Ledger,
        waiting: &mut Waiting<'_>,
    ) -> Result<(Self, Vec<Pod>), KubernetesError> {
        let effect = new_job(hosts)?;
        ledger.note(&Effect::KubernetesJob(effect.clone()))?;
        let job = Self { effect, pods: hosts.pods };
        let own = format!("{LOCAL}ciphertoll:{}", env!("CARGO_PKG_VERSION"));
        let image = hosts.image.as_deref().unwrap_or(&own);
        let KubernetesJob { name, run, .. } = &job.effect;
        let manifest = JobFields { name, run, pods: hosts.pods, image }.manifest().to_string();
        job.kubectl("create a Job", &["create", "--filename=-", "--output=name"], manifest.as_bytes())?;
        let pods = job.wait_for_all(waiting)?;
        Ok((job, pods))
    }

    /// Starts an agent in `pod`, connected to stdin and stdout of this command.
    fn command(&self, pod: &Pod) -> Command {
        let mut command = self.effect.kubectl();
        command.args(["exec", "--stdin", "--quiet", &format!("--container={CONTAINER}"), &pod.name]);
        command.args(["--", "ciphertoll", HOST_COMMAND]);
        command
    }

    /// Waits for the pod with this index after its agent was lost. It is another pod if the former one is gone.
    fn wait_for(&self, index: u16, is_interrupted: &dyn Fn() -> bool) -> Result<Pod, KubernetesError> {
        let deadline = Instant::now() + REPLACE_LIMIT;
        loop {
            let mut states = self.pod_list()?.by_index(self.pods);
            let reason = match states.swap_remove(usize::from(index)) {
                PodState::Ready(pod) => return Ok(pod),
                PodState::Pending(reason) => reason.unwrap_or_else(|| NOT_CREATED.to_owned()),
                PodState::Failed(reason) => reason,
            };
            if Instant::now() > deadline {
                return Err(KubernetesError::NotReady {
                    place: self.place(),
                    seconds: REPLACE_LIMIT.as_secs(),
                    reason,
                });
            }
            if is_interrupted() {
                return Err(KubernetesError::Interrupted);
            }
            thread::sleep(POLL_EVERY);
        }
    }

    fn wait_for_all(&self, waiting: &mut Waiting<'_>) -> Result<Vec<Pod>, KubernetesError> {
        let deadline = Instant::now() + START_LIMIT;
        let mut told = String::new();
        loop {
            let (mut ready, mut pending) = (Vec::new(), None);
            for state in self.pod_list()?.by_index(self.pods) {
                match state {
                    PodState::Ready(pod) => ready.push(pod),
                    PodState::Pending(reason) => pending = pending.or(reason),
                    PodState::Failed(reason) => {
                        return Err(KubernetesError::Failed { place: self.place(), reason });
                    }
                }
            }
            if ready.len() == usize::from(self.pods) {
                return Ok(ready);
            }
            if Instant::now() > deadline {
                let reason = pending.or_else(|| self.complaint_about_the_job());
                let reason = reason.unwrap_or_else(|| NOT_CREATED.to_owned());
                return Err(KubernetesError::NotReady {
                    place: self.place(),
                    seconds: START_LIMIT.as_secs(),
                    reason,
                });
            }
            tell(&mut told, (ready.len(), self.pods), pending.as_deref(), waiting);
            if (waiting.is_interrupted)() {
                return Err(KubernetesError::Interrupted);
            }
            thread::sleep(POLL_EVERY);
        }
    }

    fn pod_list(&self) -> Result<PodList, KubernetesError> {
        let selector = format!("--selector={RUN_LABEL}={}", self.effect.run);
        let action = "list pods";
        let json = self.kubectl(action, &["get", "pods", &selector, "--output=json"], b"")?;
        serde_json::from_slice(&json).map_err(|error| self.error(action, &error.to_string()))
    }

    /// Why there are no pods, as the Job's last event says, if this user may read events.
    fn complaint_about_the_job(&self) -> Option<String> {
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
    ) -> Result<Vec<u8>, KubernetesError> {
        let mut command = self.effect.kubectl();
        command.arg(REQUEST_TIMEOUT).args(arguments);
        let output = output_within(command, input, COMMAND_LIMIT).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => KubernetesError::NoKubectl,
            _ => self.error(action, &error.to_string()),
        })?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(self.error(action, &output.complaint()))
    }

    fn error(&self, action: &'static str, reason: &str) -> KubernetesError {
        KubernetesError::Kubectl { action, place: self.place(), reason: reason.to_owned() }
    }

    fn place(&self) -> String {
        let KubernetesJob { context, namespace, .. } = &self.effect;
        let context = context.as_ref().map(|name| format!(" of context {name}")).unwrap_or_default();
        format!("namespace {namespace}{context}")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // If this fails, the sweep of a later run deletes the Job, or Kubernetes does at the Job's deadline.
        let _ = self.effect.delete();
    }
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

/// A Job with a unique name, not yet created.
fn new_job(hosts: &KubernetesHosts) -> Result<KubernetesJob, KubernetesError> {
    let run = format!("{:016x}", rand::random::<u64>());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut job = KubernetesJob {
        kubeconfig: env::var("KUBECONFIG").ok(),
        context: hosts.context.clone(),
        namespace: hosts.namespace.to_string(),
        name: format!("ciphertoll-{run}"),
        run,
        expires_unix_s: now.as_secs() + DEADLINE_S + KEPT_S + EXPIRY_SLACK_S,
    };
    if job.context.is_none() {
        job.context = current_context(&job)?;
    }
    Ok(job)
}

/// The user's current context, which may be another one when the Job is deleted. None in a pod, which has a service account
/// and no kubeconfig.
fn current_context(job: &KubernetesJob) -> Result<Option<String>, KubernetesError> {
    let mut command = job.kubectl();
    command.args(["config", "current-context"]);
    let output = output_within(command, b"", COMMAND_LIMIT).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KubernetesError::NoKubectl,
        _ => KubernetesError::Kubectl {
            action: "read the current context",
            place: format!("namespace {}", job.namespace),
            reason: error.to_string(),
        },
    })?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(Some(name).filter(|name| output.status.success() && !name.is_empty()))
}

/// Tells progress if it differs from what was told last.
fn tell(told: &mut String, (ready, wanted): (usize, u16), reason: Option<&str>, waiting: &mut Waiting<'_>) {
    let reason = reason.map(|reason| format!("; {reason}")).unwrap_or_default();
    let line = format!("{ready} of {wanted} pods are ready{reason}");
    if *told != line {
        (waiting.progress)(&line);
        *told = line;
    }
}
