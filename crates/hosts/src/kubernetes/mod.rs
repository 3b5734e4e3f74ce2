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
/// Kubernetes replaces a lost pod after 10 s or more.
const REPLACE_LIMIT: Duration = Duration::from_mins(1);
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Added to the Job's own deadlines: clocks of clusters differ.
const EXPIRY_SLACK_S: u64 = 3600;

/// Pods of a Kubernetes cluster cannot be created or reached.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error("kubectl is not installed, but k8s: needs it")]
    NoKubectl,
    #[error("kubectl cannot {action} in {place}: {reason}")]
    Kubectl { action: &'static str, place: String, reason: String },
    #[error("{missing} of {wanted} pods in {place} are not ready after {seconds} s: {reason}")]
    NotReady { missing: usize, wanted: usize, place: String, seconds: u64, reason: String },
    #[error("a load host in {place} cannot start: {reason}")]
    Failed { place: String, reason: String },
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

/// The pods of one run. Dropping deletes the Job.
#[derive(Debug)]
pub struct JobPods {
    job: KubernetesJob,
    pods: Vec<Pod>,
}

impl JobPods {
    /// Creates the Job and waits until all its pods are ready.
    pub fn create(
        hosts: &KubernetesHosts,
        image: &str,
        ledger: &Ledger,
        waiting: &mut Waiting<'_>,
    ) -> Result<Self, KubernetesError> {
        let job = new_job(hosts)?;
        ledger.note(&Effect::KubernetesJob(job.clone()))?;
        let mut created = Self { job, pods: Vec::new() };
        let KubernetesJob { name, run, .. } = &created.job;
        let manifest = JobFields { name, run, pods: hosts.pods, image }.manifest().to_string();
        created.kubectl("create a Job", &["create", "--filename=-", "--output=name"], manifest.as_bytes())?;
        let all: Vec<usize> = (0..usize::from(hosts.pods)).collect();
        created.pods = created.wait_for(&all, usize::from(hosts.pods), START_LIMIT, waiting)?;
        Ok(created)
    }

    /// The pods in the order of their index.
    pub fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// Starts `ciphertoll` with these arguments in `pod`, connected to stdin and stdout of this command.
    pub fn command(&self, pod: &Pod, arguments: &[&str]) -> Command {
        let mut command = self.job.kubectl();
        command.args(["exec", "--stdin", "--quiet", &format!("--container={CONTAINER}"), &pod.name]);
        command.args(["--", "ciphertoll"]).args(arguments);
        command
    }

    /// Waits until the pod with this index is ready after its agent was lost. It is another pod if the former one is gone.
    pub fn replace(&mut self, index: usize, waiting: &mut Waiting<'_>) -> Result<(), KubernetesError> {
        let found = self.wait_for(&[index], self.pods.len(), REPLACE_LIMIT, waiting)?;
        self.pods.splice(index..=index, found);
        Ok(())
    }

    /// Waits at most `limit` for the pods with these indices.
    fn wait_for(
        &self,
        indices: &[usize],
        count: usize,
        limit: Duration,
        waiting: &mut Waiting<'_>,
    ) -> Result<Vec<Pod>, KubernetesError> {
        let deadline = Instant::now() + limit;
        let mut told = String::new();
        loop {
            let (mut ready, mut reasons, mut failures) = (Vec::new(), Vec::new(), Vec::new());
            let mut states = self.pod_list()?.by_index(count);
            for &index in indices {
                match std::mem::replace(&mut states[index], PodState::Pending(None)) {
                    PodState::Ready(pod) => ready.push(pod),
                    PodState::Pending(reason) => reasons.extend(reason),
                    PodState::Failed(reason) => failures.push(reason),
                }
            }
            if ready.len() == indices.len() {
                return Ok(ready);
            }
            let is_late = Instant::now() > deadline;
            if is_late && reasons.is_empty() && failures.is_empty() {
                reasons.extend(self.complaint_about_the_job());
            }
            // A failed pod is replaced; one that cannot start at all makes waiting useless.
            let is_first_start = indices.len() == count;
            if let Some(reason) = failures.first().filter(|_| is_first_start) {
                return Err(KubernetesError::Failed { place: self.place(), reason: reason.clone() });
            }
            let reason = reasons.into_iter().chain(failures).next();
            if is_late {
                return Err(KubernetesError::NotReady {
                    missing: indices.len() - ready.len(),
                    wanted: indices.len(),
                    place: self.place(),
                    seconds: limit.as_secs(),
                    reason: reason.unwrap_or_else(|| "Kubernetes has not created them".to_owned()),
                });
            }
            tell(&mut told, (ready.len(), indices.len()), reason.as_deref(), waiting);
            if (waiting.is_interrupted)() {
                return Err(KubernetesError::Interrupted);
            }
            thread::sleep(POLL_EVERY);
        }
    }

    fn pod_list(&self) -> Result<PodList, KubernetesError> {
        let selector = format!("--selector={RUN_LABEL}={}", self.job.run);
        let action = "list pods";
        let json = self.kubectl(action, &["get", "pods", &selector, "--output=json"], b"")?;
        serde_json::from_slice(&json).map_err(|error| self.error(action, &error.to_string()))
    }

    /// Why there are no pods, as the Job's last event says, if this user may read events.
    fn complaint_about_the_job(&self) -> Option<String> {
        let about = format!("--field-selector=type=Warning,involvedObject.kind=Job,involvedObject.name={}", self.job.name);
        let json = self.kubectl("list events", &["get", "events", &about, "--output=json"], b"").ok()?;
        serde_json::from_slice::<EventList>(&json).ok()?.items.pop()?.message
    }

    fn kubectl(&self, action: &'static str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, KubernetesError> {
        let mut command = self.job.kubectl();
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
        let KubernetesJob { context, namespace, .. } = &self.job;
        let context = context.as_ref().map(|name| format!(" of context {name}")).unwrap_or_default();
        format!("namespace {namespace}{context}")
    }
}

impl Drop for JobPods {
    fn drop(&mut self) {
        // If this fails, the sweep of a later run deletes the Job, or Kubernetes does at the Job's deadline.
        let _ = self.job.delete();
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
fn tell(told: &mut String, (ready, wanted): (usize, usize), reason: Option<&str>, waiting: &mut Waiting<'_>) {
    let reason = reason.map(|reason| format!("; {reason}")).unwrap_or_default();
    let line = format!("{ready} of {wanted} pods are ready{reason}");
    if *told != line {
        (waiting.progress)(&line);
        *told = line;
    }
}
