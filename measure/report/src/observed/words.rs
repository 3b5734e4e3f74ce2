//! Sentences on an observation.

use ciphertoll_model::Phase;
use ciphertoll_observe::{EncryptionKind, FindingKind, Observation, ObservedFinding, Pair};

use crate::number::{count, plural, significant};
use crate::view::{Sentence, Tone, capital, clean};

/// `trace.pcap: 1 250 new connections in 60.4 s`.
pub(crate) fn title(observation: &Observation) -> String {
    let begun: u64 = observation.pairs.iter().map(|pair| pair.connections.begun).sum();
    format!(
        "{}: {} in {} s",
        clean(&observation.source),
        plural(begun, "new connection"),
        significant(observation.seconds)
    )
}

/// The answer in one sentence: how much is not encrypted, and how much there is to change.
pub(crate) fn headline(observation: &Observation) -> String {
    if observation.pairs.is_empty() {
        return "No database connection was seen".to_owned();
    }
    let of = |filter: fn(EncryptionKind) -> bool| -> u64 {
        let all = observation.pairs.iter().flat_map(|pair| &pair.encryption);
        all.filter(|encryption| filter(encryption.kind)).map(|encryption| encryption.connections).sum()
    };
    let plain = of(|kind| matches!(kind, EncryptionKind::None | EncryptionKind::Refused));
    let encrypted = of(|kind| matches!(kind, EncryptionKind::Tls | EncryptionKind::Gss));
    let encryption = match (plain, encrypted) {
        (0, 0) => "no new connection shows whether it is encrypted".to_owned(),
        (0, all) => format!("{} encrypted, none in plaintext", plural(all, "new connection")),
        (plain, encrypted) => {
            let all = plain + encrypted;
            format!("{} of {} in plaintext", count(plain), plural(all, "new connection"))
        }
    };
    let findings = match observation.findings.len() as u64 {
        0 => "nothing to change".to_owned(),
        all => plural(all, "finding"),
    };
    capital(&format!("{encryption}; {findings}"))
}

/// `10.0.0.7 → 10.0.0.5:5432`.
pub(crate) fn place(client: &str, server: &str) -> String {
    format!("{} → {}", clean(client), clean(server))
}

pub(crate) fn place_of(pair: &Pair) -> String {
    place(pair.client_label(), &pair.server_label())
}

/// A name of a user or database as it is, but for what breaks a line. Users of MySQL may have none.
pub(crate) fn name(text: &str) -> String {
    if text.is_empty() {
        return "\"\"".to_owned();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The phase by its name in documents; a newer observer may know others.
pub(crate) fn phase_named(name: &str) -> Option<Phase> {
    serde_json::from_value(name.into()).ok()
}

/// What concerns security or fails is marked.
pub(crate) fn tone(finding: &ObservedFinding) -> Tone {
    match finding.kind {
        FindingKind::PasswordInClear
        | FindingKind::PasswordWeaklyHashed
        | FindingKind::NotEncrypted
        | FindingKind::ObsoleteVersion
        | FindingKind::NoForwardSecrecy
        | FindingKind::WeakKey
        | FindingKind::CertificateExpires
        | FindingKind::HandshakesFail => Tone::Caution,
        _ => Tone::Neutral,
    }
}

pub(crate) fn limits(observation: &Observation) -> Vec<Sentence> {
    let limits = ciphertoll_observe::limits(observation).into_iter();
    limits.map(|limit| Sentence::neutral(format!("{}.", capital(&limit)))).collect()
}

/// What was left out of a list.
pub(crate) fn rest(all: usize, shown: usize, what: &str) -> Option<Sentence> {
    let rest = all.checked_sub(shown).filter(|rest| *rest > 0)?;
    let rest = plural(rest as u64, what);
    Some(Sentence::neutral(format!("{rest} more: ciphertoll observe --format csv or json.")))
}
