//! The Indexed Job whose pods are load hosts.

use ciphertoll_record::{RUN_LABEL, SCRATCH_DIRECTORY_VARIABLE};
use serde_json::{Value, json};

use crate::agent::{POD_COMMAND, POD_IDLE_LIMIT};

/// The container of a pod.
pub(super) const CONTAINER: &str = "load";
/// No registry has this name: nodes must have such an image already.
pub(super) const LOCAL: &str = "localhost/";
/// Where agents keep their files: in memory, and gone with the pod.
const SCRATCH: &str = "/scratch";
/// A user without a name, which no file of an image belongs to.
const USER: u32 = 65_532;
/// Pods are ended then, whatever happens. Long before that they end when they have no agent.
pub(super) const DEADLINE_S: u64 = 24 * 3600;
/// How long an ended Job is kept.
pub(super) const KEPT_S: u64 = 60;

/// What differs between Jobs.
pub(super) struct JobFields<'a> {
    pub(super) name: &'a str,
    pub(super) run: &'a str,
    pub(super) pods: u16,
    pub(super) image: &'a str,
}

impl JobFields<'_> {
    /// As `kubectl create` reads it. It contains no secrets: agents get theirs over stdin.
    pub(super) fn manifest(&self) -> Value {
        let Self { name, pods, .. } = self;
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": name, "labels": self.labels() },
            "spec": {
                "completions": pods,
                "parallelism": pods,
                "completionMode": "Indexed",
                // Each pod may be replaced, for example if its node is drained.
                "backoffLimit": pods,
                "activeDeadlineSeconds": DEADLINE_S,
                "ttlSecondsAfterFinished": KEPT_S,
                "template": { "metadata": { "labels": self.labels() }, "spec": self.pod() },
            },
        })
    }

    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/name": "ciphertoll",
            "app.kubernetes.io/component": "load-host",
            RUN_LABEL: self.run,
        })
    }

    fn pod(&self) -> Value {
        json!({
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            // One pod per node, as long as there are nodes that pods may be on.
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "nodeTaintsPolicy": "Honor",
                "labelSelector": { "matchLabels": { RUN_LABEL: self.run } },
            }],
            "containers": [self.container()],
            "volumes": [{ "name": "scratch", "emptyDir": { "medium": "Memory", "sizeLimit": "256Mi" } }],
        })
    }

    fn container(&self) -> Value {
        json!({
            "name": CONTAINER,
            "image": self.image,
            "imagePullPolicy": if self.image.starts_with(LOCAL) { "Never" } else { "IfNotPresent" },
            "command": ["ciphertoll", POD_COMMAND, POD_IDLE_LIMIT.as_secs().to_string()],
            "env": [{ "name": SCRATCH_DIRECTORY_VARIABLE, "value": SCRATCH }],
            // No limits: they would throttle the load.
            "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            },
            "volumeMounts": [{ "name": "scratch", "mountPath": SCRATCH }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_asks_for_as_many_pods_as_hosts_and_carries_the_runs_label() {
        let fields = JobFields { name: "ciphertoll-07", run: "07", pods: 4, image: "r.example/c:1" };
        let manifest = fields.manifest();
        let spec = &manifest["spec"];
        assert_eq!((&spec["completions"], &spec["parallelism"]), (&json!(4), &json!(4)));
        let template = &spec["template"];
        for labels in [&manifest["metadata"]["labels"], &template["metadata"]["labels"]] {
            assert_eq!(labels[RUN_LABEL], "07");
        }
        assert_eq!(
            template["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"][RUN_LABEL],
            "07"
        );
        assert_eq!(template["spec"]["containers"][0]["image"], "r.example/c:1");
    }
}
