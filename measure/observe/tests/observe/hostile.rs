//! Observations with text that peers chose.

use ciphertoll_observe::Observation;
use proptest::prelude::*;

/// Observations of which every part is present.
pub(crate) fn sample() -> Observation {
    serde_json::from_str(include_str!("../sample.json")).expect("an observation")
}

/// Any text, and some that breaks formats.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::sample::select(
            &[
                "",
                "=1+1",
                "a,\"b\"\r\n",
                "|x|",
                "<script>alert(1)</script>",
                "tls",
                "0x",
                "0xfffff",
                "TLS_",
                "TLS_RSA_WITH_",
                "rsa",
                "rsa99999999999",
                "dhe4294967296",
                "ecdsa_",
                "\u{202e}\0",
            ][..]
        )
        .prop_map(str::to_owned),
    ]
}

/// The sample with these texts in place of everything that is text.
pub(crate) fn with_text(texts: &[String]) -> Observation {
    let mut observation = sample();
    let mut texts = texts.iter().cycle();
    let mut next = || texts.next().cloned().unwrap_or_default();
    observation.source = next();
    observation.began_at = Some(next());
    for pair in &mut observation.pairs {
        (pair.client, pair.server, pair.protocol) = (next(), next(), Some(next()));
        for phase in &mut pair.phases {
            phase.phase = next();
        }
        for encryption in &mut pair.encryption {
            let names = [
                &mut encryption.version,
                &mut encryption.suite,
                &mut encryption.group,
                &mut encryption.signature,
            ];
            for name in names {
                *name = Some(next());
            }
            encryption.offered_groups.iter_mut().for_each(|group| *group = next());
            if let Some(certificate) = &mut encryption.certificate {
                let texts = [
                    &mut certificate.subject,
                    &mut certificate.issuer,
                    &mut certificate.key,
                    &mut certificate.not_after,
                ];
                for text in texts {
                    *text = next();
                }
                (certificate.serial, certificate.not_before) = (Some(next()), Some(next()));
                (certificate.signature, certificate.sha256) = (Some(next()), Some(next()));
            }
        }
        pair.logins.iter_mut().for_each(|login| login.method = next());
        for process in &mut pair.processes {
            process.name = next();
            (process.container, process.unit) = (Some(next()), Some(next()));
        }
        pair.failures.iter_mut().for_each(|failure| failure.reason = next());
        for user in &mut pair.users {
            (user.user, user.database) = (next(), Some(next()));
        }
    }
    for finding in &mut observation.findings {
        (finding.client, finding.server) = (next(), next());
        (finding.seen, finding.todo) = (next(), next());
    }
    observation
}
