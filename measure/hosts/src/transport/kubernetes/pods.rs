//! What Kubernetes says of the pods of a Job.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The index of a pod in its Job, as an annotation.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Reasons of a waiting container that no waiting changes.
const PERMANENT: [&str; 3] = ["InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"];

/// `kubectl get pods -o json`, as far as it is used.
#[derive(Debug, Default, Deserialize)]
pub(super) struct PodList {
    items: Vec<PodObject>,
}

#[derive(Debug, Deserialize)]
struct PodObject {
    metadata: PodMetadata,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ContainerStatus {
    #[serde(default)]
    state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<StateDetail>,
    terminated: Option<StateDetail>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateDetail {
    reason: Option<String>,
    message: Option<String>,
    exit_code: Option<i32>,
}

/// A pod that an agent can run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) node: String,
}

/// The state of one pod of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    Ready(Pod),
    /// It may become ready; the reason that it is not, if Kubernetes gives one.
    Pending(Option<String>),
    /// It will not become ready.
    Failed(String),
}

impl PodList {
    /// The states of the pods with an index below `count`. Pods that are being deleted do not count; of several with one
    /// index (a failed one and its replacement), the best counts.
    pub(super) fn by_index(&self, count: u16) -> Vec<PodState> {
        let mut states = vec![PodState::Pending(None); usize::from(count)];
        for pod in self.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let index = pod.metadata.annotations.get(INDEX).and_then(|index| index.parse::<usize>().ok());
            let Some(known) = index.and_then(|index| states.get_mut(index)) else { continue };
            let state = pod.state();
            if state.rank() >= known.rank() {
                *known = state;
            }
        }
        states
    }
}

impl PodState {
    fn rank(&self) -> u8 {
        match self {
            Self::Pending(None) => 0,
            Self::Failed(_) => 1,
            Self::Pending(Some(_)) => 2,
            Self::Ready(_) => 3,
        }
    }
}

impl PodObject {
    fn state(&self) -> PodState {
        let name = &self.metadata.name;
        if matches!(self.status.phase.as_str(), "Failed" | "Succeeded") {
            return PodState::Failed(format!("pod {name} has ended: {}", self.end()));
        }
        if let Some(node) = &self.spec.node_name
            && self.condition("Ready").is_some_and(|ready| ready.status == "True")
        {
            return PodState::Ready(Pod { name: name.clone(), node: node.clone() });
        }
        let waiting = self.status.container_statuses.iter().find_map(|status| status.state.waiting.as_ref());
        if let Some(StateDetail { reason: Some(reason), message, .. }) = waiting {
            let said = format!("pod {name}: {}", joined(reason, message.as_deref()));
            return if PERMANENT.contains(&reason.as_str()) {
                PodState::Failed(said)
            } else {
                PodState::Pending(Some(said))
            };
        }
        let unscheduled = self.condition("PodScheduled").filter(|scheduled| scheduled.status == "False");
        let reason = unscheduled.and_then(|condition| {
            Some(format!(
                "pod {name}: {}",
                joined(condition.reason.as_deref()?, condition.message.as_deref())
            ))
        });
        PodState::Pending(Some(reason.unwrap_or_else(|| format!("pod {name} is being started"))))
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Why an ended pod ended.
    fn end(&self) -> String {
        let ended = self.status.container_statuses.iter().find_map(|status| status.state.terminated.as_ref());
        match (&self.status.reason, ended) {
            (Some(reason), _) => joined(reason, self.status.message.as_deref()),
            (None, Some(StateDetail { reason, message, exit_code })) => {
                let reason = reason.as_deref().unwrap_or("its program ended");
                let code = exit_code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
                joined(&format!("{reason}{code}"), message.as_deref())
            }
            (None, None) => self.status.phase.clone(),
        }
    }
}

fn joined(reason: &str, message: Option<&str>) -> String {
    let words = message.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() { reason.to_owned() } else { format!("{reason}: {words}") }
}

#[cfg(test)]
mod tests;
