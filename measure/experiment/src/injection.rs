//! Known effects, for the truth experiments.

use std::time::Duration;

use ciphertoll_model::{Arm, Cell, Path};

/// A known effect: a delay of CPU burnt inside each operation of some trials. The truth experiments
/// must find it again.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    target: InjectionTarget,
    delay: Duration,
}

/// Which trials an injection is for.
#[derive(Clone, Copy, Debug)]
enum InjectionTarget {
    /// Those of one copy of the baseline, whatever its path.
    Arm(Arm),
    /// Those of the cells with this path, in either arm.
    Path(Path),
}

impl Injection {
    /// `delay` inside each operation of one arm: its other copy stays as it is.
    pub fn into_arm(arm: Arm, delay: Duration) -> Self {
        Self { target: InjectionTarget::Arm(arm), delay }
    }

    /// `delay` inside each operation of the cells with `path`: the toll of the path grows.
    pub fn into_path(path: Path, delay: Duration) -> Self {
        Self { target: InjectionTarget::Path(path), delay }
    }

    pub(crate) fn delay_of(&self, cell: &Cell, arm: Arm) -> Duration {
        let is_meant = match self.target {
            InjectionTarget::Arm(meant) => meant == arm,
            InjectionTarget::Path(meant) => meant == cell.treatment.path,
        };
        if is_meant { self.delay } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{Engine, Plan, ServerKey, ServerLevel, Spec};

    use super::*;

    const DELAY: Duration = Duration::from_micros(75);

    /// The delays of `injection`: plain in both arms, then TLS in both arms.
    fn delays(injection: Injection) -> [Duration; 4] {
        let plan = Plan::new(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 1).unwrap();
        let cell = |is_tls| plan.cells.iter().find(|cell| cell.treatment.path.as_tls().is_some() == is_tls);
        let [bare, encrypted] = [cell(false).unwrap(), cell(true).unwrap()];
        [(bare, Arm::Main), (bare, Arm::Repeat), (encrypted, Arm::Main), (encrypted, Arm::Repeat)]
            .map(|(cell, arm)| injection.delay_of(cell, arm))
    }

    #[test]
    fn an_injection_slows_what_it_is_meant_for_and_nothing_else() {
        let none = Duration::ZERO;
        assert_eq!(delays(Injection::into_arm(Arm::Repeat, DELAY)), [none, DELAY, none, DELAY]);
        assert_eq!(delays(Injection::into_path(Path::Plain, DELAY)), [DELAY, DELAY, none, none]);
        let tls = Path::tls(ciphertoll_model::TlsVersion::Tls13, ServerKey::P256);
        assert_eq!(delays(Injection::into_path(tls, DELAY)), [none, none, DELAY, DELAY]);
    }
}
