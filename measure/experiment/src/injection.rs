//! Known effects, for the truth experiments.

use ciphertoll_model::{Arm, Cell, Path};

/// A known effect: some trials repeat the work of a share of their connects, which makes them 1 + share times as long. The
/// truth experiments must find it again.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    target: InjectionTarget,
    share: f64,
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
    /// Into one arm: its other copy stays as it is.
    pub fn into_arm(arm: Arm, share: f64) -> Self {
        Self { target: InjectionTarget::Arm(arm), share }
    }

    /// Into the cells with `path`: the cost of the path grows.
    pub fn into_path(path: Path, share: f64) -> Self {
        Self { target: InjectionTarget::Path(path), share }
    }

    pub(crate) fn share_of(&self, cell: &Cell, arm: Arm) -> f64 {
        let is_meant = match self.target {
            InjectionTarget::Arm(meant) => meant == arm,
            InjectionTarget::Path(meant) => meant == cell.treatment.path,
        };
        if is_meant { self.share } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{Engine, Plan, ServerKey, ServerLevel, Spec};

    use super::*;

    const SHARE: f64 = 0.25;

    /// What `injection` slows down: plain in both arms, then TLS in both arms.
    fn slowed(injection: Injection) -> [bool; 4] {
        let plan = Plan::new(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 1).unwrap();
        let cell = |is_tls| plan.cells.iter().find(|cell| cell.treatment.path.as_tls().is_some() == is_tls);
        let [bare, encrypted] = [cell(false).unwrap(), cell(true).unwrap()];
        [(bare, Arm::Main), (bare, Arm::Repeat), (encrypted, Arm::Main), (encrypted, Arm::Repeat)]
            .map(|(cell, arm)| injection.share_of(cell, arm) > 0.0)
    }

    #[test]
    fn an_injection_slows_what_it_is_meant_for_and_nothing_else() {
        assert_eq!(slowed(Injection::into_arm(Arm::Repeat, SHARE)), [false, true, false, true]);
        assert_eq!(slowed(Injection::into_path(Path::Plain, SHARE)), [true, true, false, false]);
        let tls = Path::tls(ciphertoll_model::TlsVersion::Tls13, ServerKey::P256);
        assert_eq!(slowed(Injection::into_path(tls, SHARE)), [false, false, true, true]);
    }
}
