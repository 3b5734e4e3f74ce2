use serde_json::{Value, json};

use super::*;

fn pod(index: u16, name: &str, status: &Value) -> Value {
    json!({
        "metadata": { "name": name, "annotations": { INDEX: index.to_string() } },
        "spec": { "nodeName": "node-1" },
        "status": status,
    })
}

fn states(pods: &[Value]) -> Vec<PodState> {
    serde_json::from_value::<PodList>(json!({ "items": pods })).unwrap().by_index(2)
}

fn running() -> Value {
    json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] })
}

fn ready(name: &str) -> PodState {
    PodState::Ready(Pod { name: name.to_owned(), node: "node-1".to_owned() })
}

#[test]
fn ready_pods_are_found_by_their_index() {
    let found = states(&[pod(1, "b", &running()), pod(0, "a", &running())]);
    assert_eq!(found, [ready("a"), ready("b")]);
}

#[test]
fn a_pod_that_is_being_deleted_does_not_count() {
    let mut leaving = pod(0, "a", &running());
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(states(&[leaving, pod(0, "c", &running())])[0], ready("c"));
}

#[test]
fn a_replacement_counts_and_not_the_failed_pod() {
    let failed = json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory." });
    let [first, second] = states(&[pod(0, "c", &running()), pod(0, "a", &failed)]).try_into().unwrap();
    assert_eq!((first, second), (ready("c"), PodState::Pending(None)));
    let evicted = "pod a has ended: Evicted: The node was low on memory.";
    assert_eq!(states(&[pod(0, "a", &failed)])[0], PodState::Failed(evicted.to_owned()));
}

#[test]
fn the_reasons_of_kubernetes_are_told() {
    let waiting = |reason: &str| json!({ "phase": "Pending", "containerStatuses": [{ "state": { "waiting": { "reason": reason, "message": "no\n such" } } }] });
    let pulling =
        states(&[pod(0, "a", &waiting("ErrImagePull")), pod(1, "b", &waiting("ErrImageNeverPull"))]);
    assert_eq!(pulling[0], PodState::Pending(Some("pod a: ErrImagePull: no such".to_owned())));
    assert_eq!(pulling[1], PodState::Failed("pod b: ErrImageNeverPull: no such".to_owned()));
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu." });
    let unscheduled = states(&[pod(0, "a", &json!({ "phase": "Pending", "conditions": [condition] }))]);
    let said = "pod a: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(unscheduled[0], PodState::Pending(Some(said.to_owned())));
    let ended = json!({ "phase": "Failed", "containerStatuses": [{ "state": { "terminated": { "reason": "StartError", "message": "exec: \"ciphertoll\": not found", "exitCode": 128 } } }] });
    let said = "pod a has ended: StartError (exit code 128): exec: \"ciphertoll\": not found";
    assert_eq!(states(&[pod(0, "a", &ended)])[0], PodState::Failed(said.to_owned()));
}
