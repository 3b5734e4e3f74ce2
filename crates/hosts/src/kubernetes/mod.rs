//! Load hosts that are pods: an Indexed Job, created and reached with the user's own `kubectl`.

mod idle;
mod manifest;
mod pods;

use std::env;
use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ciphertoll_model::KubernetesHosts;
use ciphertoll_record::{Effect, KubernetesJob, Ledger, RUN_LABEL, output_within};
use serde::Deserialize;

pub use self::idle::{POD_COMMAND, wait_in_pod};
use self::manifest::{CONTAINER, DEADLINE_S, JobFields, KEPT_S};
pub use self::pods::Pod;
use self::pods::{PodList, PodState};

/// For one command of `kubectl`, including a program that gets the user's credentials.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);
const REQUEST_TIMEOUT: &str = "--request-timeout=20s";
/// For pulling the image and starting the pods.
const START_LIMIT: Duration = Duration::from_mins(3);
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
    #[error("load host in {place}: {reason}")]
    NotReady { place: String, reason: String },
    #[error("load host in {place}: not ready after {} s; {reason}", START_LIMIT.as_secs())]
    Late { place: String, reason: String },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Ledger(#[from] ciphertoll_record::Error),
}

/// While waiting for pods.
pub struct Waiting<'a> {
    /// Gets a line whenever something changes.
    pub progress: &'a mut dyn FnMut(&str),
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// The Job of one run. Dropping deletes it.
#[derive(Debug)]
pub struct Job {
    effect: KubernetesJob,
    pods: u16,
}

impl Job {
    /// Creates the Job and waits until all its pods are ready. Returns them in the order of their index.
    pub fn create(
        hosts: &KubernetesHosts,
        image: &str,
        ledger: &Ledger,
        waiting: &mut Waiting<'_>,
    ) -> Result<(Self, Vec<Pod>), KubernetesError> {
        let effect = new_job(hosts)?;
        ledger.note(&Effect::KubernetesJob(effect.clone()))?;
        let job = Self { effect, pods: hosts.pods };
        let KubernetesJob { name, run, .. } = &job.effect;
        let manifest = JobFields { name, run, pods: hosts.pods, image }.manifest().to_string();
        job.kubectl("create a Job", &["create", "--filename=-", "--output=name"], manifest.as_bytes())?;
        let pods = job.wait_for_all(waiting)?;
        Ok((job, pods))
    }

    /// Starts `ciphertoll` with these arguments in `pod`, connected to stdin and stdout of this command.
    pub fn command(&self, pod: &Pod, arguments: &[&str]) -> Command {
        let mut command = self.effect.kubectl();
        command.args(["exec", "--stdin", "--quiet", &format!("--container={CONTAINER}"), &pod.name]);
        command.args(["--", "ciphertoll"]).args(arguments);
        command
    }

    /// The pod with this index, if one is ready. It is another pod than before if that one was lost.
    pub fn pod(&self, index: u16) -> Result<Pod, KubernetesError> {
        let mut states = self.pod_list()?.by_index(self.pods);
        let reason = match states.swap_remove(usize::from(index)) {
            PodState::Ready(pod) => return Ok(pod),
            PodState::Pending(reason) => reason.unwrap_or_else(|| NOT_CREATED.to_owned()),
            PodState::Failed(reason) => reason,
        };
        Err(KubernetesError::NotReady { place: self.place(), reason })
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
                    PodState::Failed(reason) => return Err(KubernetesError::NotReady { place: self.place(), reason }),
                }
            }
            if ready.len() == usize::from(self.pods) {
                return Ok(ready);
            }
            if Instant::now() > deadline {
                let reason = pending.or_else(|| self.complaint_about_the_job());
                let reason = reason.unwrap_or_else(|| NOT_CREATED.to_owned());
                return Err(KubernetesError::Late { place: self.place(), reason });
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
        let about = format!("--field-selector=type=Warning,involvedObject.kind=Job,involvedObject.name={}", self.effect.name);
        let json = self.kubectl("list events", &["get", "events", &about, "--output=json"], b"").ok()?;
        serde_json::from_slice::<EventList>(&json).ok()?.items.pop()?.message
    }

    fn kubectl(&self, action: &'static str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, KubernetesError> {
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
