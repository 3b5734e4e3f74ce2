//! A Kubernetes Job of a run, and its removal by the user's own `kubectl`.

use std::io;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::output::output_within;

/// The label whose value names the run that created an object.
pub const RUN_LABEL: &str = "ciphertoll/run";

/// For one request of `kubectl`.
const REQUEST_TIMEOUT: &str = "--request-timeout=10s";
/// For all requests of one deletion, and for a program that gets the user's credentials.
const DELETE_LIMIT: Duration = Duration::from_secs(30);

/// A Job that a run creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesJob {
    /// The value of the run's environment variable KUBECONFIG.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kubeconfig: Option<String>,
    /// The context in that file. Without one, `kubectl` uses the service account of the pod that it runs in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context: Option<String>,
    pub namespace: String,
    /// Unique.
    pub name: String,
    /// The value of [`RUN_LABEL`]. Unique.
    pub run: String,
    /// Kubernetes deletes the Job itself by then.
    pub expires_unix_s: u64,
}

impl KubernetesJob {
    /// `kubectl` for the Job's context and namespace.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new("kubectl");
        match &self.kubeconfig {
            Some(path) => command.env("KUBECONFIG", path),
            None => command.env_remove("KUBECONFIG"),
        };
        if let Some(context) = &self.context {
            command.arg(format!("--context={context}"));
        }
        command.arg(format!("--namespace={}", self.namespace));
        command
    }

    /// Deletes the Job; its pods follow. Succeeds if there is no such Job. A Job without the run's label is not deleted.
    pub fn delete(&self) -> io::Result<()> {
        let mut command = self.kubectl();
        command.args([REQUEST_TIMEOUT, "delete", "jobs", "--wait=false", "--cascade=foreground"]);
        command.arg(format!("--selector={RUN_LABEL}={}", self.run));
        command.arg(format!("--field-selector=metadata.name={}", self.name));
        let output = output_within(command, b"", DELETE_LIMIT)
            .map_err(|error| io::Error::new(error.kind(), format!("kubectl delete: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("kubectl delete: {}", output.complaint())))
    }

    /// Whether Kubernetes has deleted the Job itself.
    pub(crate) fn is_expired(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.as_secs() > self.expires_unix_s
    }
}
