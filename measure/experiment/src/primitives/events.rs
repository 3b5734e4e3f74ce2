//! Times the primitives of connects on this machine, so that the report can separate a signature from the rest of a
//! handshake.

use std::collections::{BTreeMap, BTreeSet};

use ciphertoll_model::{
    Cell, ConnectionUse, Driver, Event, Group, KeyExchangeTime, ServerKey, SignatureTime, TlsLibrary,
};

use crate::interrupt::Interrupt;
use crate::primitives::agreement::key_exchange;
use crate::primitives::error::PrimitiveError;
use crate::primitives::signature::signature;
use crate::trial::Emit;

/// The key that signs the lab's certificates: every client verifies one of its signatures.
const AUTHORITY: ServerKey = ServerKey::P256;
/// The groups that clients and servers negotiate by default.
const BY_DEFAULT: [Group; 2] = [Group::X25519, Group::P256];

#[derive(Debug, PartialEq, Eq)]
struct TimedPrimitives {
    keys: BTreeSet<ServerKey>,
    groups: BTreeSet<Group>,
}

impl TimedPrimitives {
    /// `None` if no connect uses TLS with the native client. External servers compute on another machine, and rustls is not
    /// timed.
    fn by(cells: &[&Cell]) -> Option<Self> {
        let connects = cells.iter().filter(|cell| {
            cell.workload.connection_use() == ConnectionUse::PerOperation
                && cell.treatment.driver == Driver::Native
                && cell.treatment.server.url.is_none()
        });
        let paths = connects.filter_map(|cell| cell.treatment.path.as_tls());
        let paths: Vec<_> = paths.filter(|tls| tls.parameters.library == TlsLibrary::OpenSsl).collect();
        if paths.is_empty() {
            return None;
        }
        Some(Self {
            keys: paths.iter().filter_map(|tls| tls.key).chain([AUTHORITY]).collect(),
            groups: paths.iter().filter_map(|tls| tls.parameters.group).chain(BY_DEFAULT).collect(),
        })
    }
}

/// Times the primitives that the connects of `cells` use, and reports them. A primitive that cannot be timed is
/// reported and does not end the run.
pub(crate) fn time(cells: &[&Cell], interrupt: &Interrupt, emit: &mut Emit<'_>) {
    let Some(wanted) = TimedPrimitives::by(cells) else { return };
    emit(Event::Preparing { what: "timing signatures and key exchanges".to_owned() });
    // Interrupted: the scheduler checks for that next.
    let Some((signatures, key_exchanges)) = timed(&wanted, &|| interrupt.ending().is_some(), emit) else {
        return;
    };
    emit(Event::PrimitivesMeasured { signatures, key_exchanges });
}

type PrimitiveTimes = (BTreeMap<String, SignatureTime>, BTreeMap<String, KeyExchangeTime>);

/// `None` if interrupted.
fn timed(
    wanted: &TimedPrimitives,
    interrupted: &dyn Fn() -> bool,
    emit: &mut Emit<'_>,
) -> Option<PrimitiveTimes> {
    let (mut signatures, mut key_exchanges) = PrimitiveTimes::default();
    let mut failed = |error: &PrimitiveError| emit(Event::Warned { message: error.to_string() });
    for key in &wanted.keys {
        match signature(*key, interrupted) {
            Ok(time) => signatures.extend(time.map(|time| (key.label().to_owned(), time))),
            Err(PrimitiveError::Interrupted) => return None,
            Err(error) => failed(&error),
        }
    }
    for group in &wanted.groups {
        match key_exchange(*group, interrupted) {
            Ok(time) => key_exchanges.extend(time.map(|time| (group.label().to_owned(), time))),
            Err(PrimitiveError::Interrupted) => return None,
            Err(error) => failed(&error),
        }
    }
    Some((signatures, key_exchanges))
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{Plan, Spec};

    use super::*;

    /// The primitives of a plan for these levels.
    fn wanted(levels: &str) -> Option<TimedPrimitives> {
        let plan = Plan::new(&Spec::from_toml(&format!("[[grid]]\n{levels}\n")).unwrap(), 1).unwrap();
        TimedPrimitives::by(&plan.cells.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_plans_own_keys_are_timed_and_groups_that_servers_take() {
        let found = wanted(
            "path = [\"plain\", \"tls1.3-rsa2048\", \"tls1.2-ed25519+group=p521\"]\nworkload = [\"connect\"]",
        );
        let keys = [ServerKey::P256, ServerKey::Ed25519, ServerKey::Rsa2048];
        let groups = [Group::X25519, Group::P256, Group::P521];
        assert_eq!(found, Some(TimedPrimitives { keys: keys.into(), groups: groups.into() }));
    }

    #[test]
    fn what_has_no_connects_by_our_own_tls_needs_no_times() {
        for levels in [
            "path = [\"plain\", \"unix\"]\nworkload = [\"connect\"]",
            "path = [\"plain\", \"tls1.3-p256\"]\nworkload = [\"point-select\"]",
            "path = [\"plain\", \"tls1.3-p256+client=rustls\"]\nworkload = [\"connect\"]",
            "server = [\"postgres\"]\npath = [\"plain\", \"tls1.3-p256\"]\nworkload = [\"connect\"]\n\
             driver = [\"libpq\"]",
        ] {
            assert_eq!(wanted(levels), None, "{levels}");
        }
    }

    #[test]
    fn what_is_wanted_is_said_by_its_labels() {
        let wanted = TimedPrimitives {
            keys: [ServerKey::P256].into(),
            groups: [Group::P384, Group::X25519MlKem768].into(),
        };
        let mut said = Vec::new();
        let times = timed(&wanted, &|| false, &mut |event| said.push(event));
        let (signatures, key_exchanges) = times.unwrap();
        assert_eq!(signatures.keys().collect::<Vec<_>>(), ["p256"]);
        assert_eq!(key_exchanges.keys().collect::<Vec<_>>(), ["p384"], "and none for what cannot be timed");
        assert_eq!(said, []);
        assert!(timed(&wanted, &|| true, &mut |_| ()).is_none());
    }
}
