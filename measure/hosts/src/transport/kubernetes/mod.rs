//! Load hosts that are pods: an Indexed Job, created and reached with the user's own `kubectl`.

mod client;
mod manifest;
mod pods;

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::KubernetesHosts;
use ciphertoll_record::{Effect, Ledger};

use self::client::{Creation, JobClient};
use self::pods::{Pod, PodState};
use super::host_transport::{HostTransport, Waiting};
use crate::error::{HostError, KubernetesError};

/// For pulling the image and starting the pods.
const START_LIMIT: Duration = Duration::from_mins(2);
/// Kubernetes replaces a lost pod after 10 s, and after twice that time for each further loss.
const REPLACE_LIMIT: Duration = Duration::from_mins(2);
const POLL_EVERY: Duration = Duration::from_millis(500);

/// An agent in a pod.
pub(super) struct PodTransport {
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

impl HostTransport for PodTransport {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<Command, HostError> {
        if std::mem::replace(&mut self.was_started, true) {
            self.pod = self.job.wait_for(self.index, is_interrupted)?;
        }
        Ok(self.job.client.agent(&self.pod))
    }

    fn node(&self) -> Option<&str> {
        Some(&self.pod.node)
    }
}

/// Fails if the Job cannot be created: no such context or namespace, no right, a quota. Creates nothing.
pub(super) fn check(hosts: &KubernetesHosts) -> Result<(), KubernetesError> {
    Ok(JobClient::new(hosts)?.create(Creation::Check)?)
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
    client: JobClient,
}

impl Job {
    /// Creates the Job and waits until all its pods are ready. Returns them in the order of their index.
    fn create(
        hosts: &KubernetesHosts,
        ledger: &Ledger,
        waiting: &mut Waiting<'_>,
    ) -> Result<(Self, Vec<Pod>), KubernetesError> {
        let client = JobClient::new(hosts)?;
        ledger.note(&Effect::KubernetesJob(client.effect().clone()))?;
        let job = Self { client };
        job.client.create(Creation::Real)?;
        let pods = job.wait_for_all(waiting)?;
        Ok((job, pods))
    }

    /// Waits for the pod with this index after its agent was lost. It is another pod if the former one is gone.
    fn wait_for(&self, index: u16, is_interrupted: &dyn Fn() -> bool) -> Result<Pod, KubernetesError> {
        let deadline = Instant::now() + REPLACE_LIMIT;
        loop {
            let mut states = self.client.pod_list()?.by_index(self.client.pods());
            let reason = match states.swap_remove(usize::from(index)) {
                PodState::Ready(pod) => return Ok(pod),
                PodState::Pending(reason) => reason,
                PodState::Failed(reason) => Some(reason),
            };
            if Instant::now() > deadline {
                let reason = reason.unwrap_or_else(|| self.complaint());
                return Err(KubernetesError::NotReady {
                    place: self.client.place(),
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

    /// Why a pod was not created.
    fn complaint(&self) -> String {
        let reason = self.client.complaint_about_the_job();
        reason.unwrap_or_else(|| "Kubernetes has not created its pod".to_owned())
    }

    fn wait_for_all(&self, waiting: &mut Waiting<'_>) -> Result<Vec<Pod>, KubernetesError> {
        let deadline = Instant::now() + START_LIMIT;
        let mut told = String::new();
        loop {
            let (mut ready, mut pending) = (Vec::new(), None);
            for state in self.client.pod_list()?.by_index(self.client.pods()) {
                match state {
                    PodState::Ready(pod) => ready.push(pod),
                    PodState::Pending(reason) => pending = pending.or(reason),
                    PodState::Failed(reason) => {
                        return Err(KubernetesError::Failed { place: self.client.place(), reason });
                    }
                }
            }
            if ready.len() == usize::from(self.client.pods()) {
                return Ok(ready);
            }
            if Instant::now() > deadline {
                let reason = pending.unwrap_or_else(|| self.complaint());
                return Err(KubernetesError::NotReady {
                    place: self.client.place(),
                    seconds: START_LIMIT.as_secs(),
                    reason,
                });
            }
            tell(&mut told, (ready.len(), self.client.pods()), pending.as_deref(), waiting);
            if (waiting.is_interrupted)() {
                return Err(KubernetesError::Interrupted);
            }
            thread::sleep(POLL_EVERY);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // If this fails, the sweep of a later run deletes the Job, or Kubernetes does at the Job's deadline.
        let _ = self.client.effect().delete();
    }
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
