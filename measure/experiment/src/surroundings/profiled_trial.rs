//! The profilers of one trial, and what they found.

use std::collections::BTreeMap;

use ciphertoll_lab::{Error, Lab, Profiler, SAMPLES_PER_S, family_of};
use ciphertoll_model::{CpuPart, Profile, ProfiledRole};

use crate::samples;

/// `perf` refuses a list with a process that has just ended, and misses threads that start while it attaches.
const ATTEMPTS: u32 = 5;

#[derive(Default)]
pub(crate) struct ProfiledTrial {
    attached: Vec<Attached>,
    found: BTreeMap<ProfiledRole, BTreeMap<CpuPart, u64>>,
    /// The first problem: the trial has no profile then.
    problem: Option<String>,
}

struct Attached {
    role: ProfiledRole,
    /// Its processes before the trial.
    processes: Vec<i32>,
    profiler: Profiler,
}

impl ProfiledTrial {
    pub(crate) fn into_profile(self) -> Result<Profile, String> {
        match self.problem {
            Some(reason) => Err(reason),
            None if self.found.values().all(BTreeMap::is_empty) => {
                let reason = "no samples: its processes run elsewhere, or used too little CPU time";
                Err(reason.to_owned())
            }
            None => Ok(Profile { samples_per_s: SAMPLES_PER_S, roles: self.found }),
        }
    }

    pub(crate) fn is_attached(&self, role: ProfiledRole) -> bool {
        self.problem.is_some() || self.attached.iter().any(|attached| attached.role == role)
    }

    /// Attaches to processes and their descendants.
    pub(crate) fn attach(&mut self, role: ProfiledRole, processes: &[i32], lab: &Lab) {
        if processes.is_empty() {
            return;
        }
        self.attempt(|this| {
            let mut attempts = 1;
            loop {
                let processes: Vec<i32> = processes.iter().flat_map(|process| family_of(*process)).collect();
                match lab.attach_profiler(role.label(), &processes) {
                    Ok(profiler) => {
                        this.attached.push(Attached { role, processes, profiler });
                        return Ok(());
                    }
                    Err(error) if attempts == ATTEMPTS => return Err(error),
                    Err(_) => attempts += 1,
                }
            }
        });
    }

    pub(crate) fn begin(&mut self) {
        self.tell_all(Profiler::begin);
    }

    pub(crate) fn pause(&mut self) {
        self.tell_all(Profiler::pause);
    }

    /// Ends the profilers and counts their samples, which takes some seconds.
    pub(crate) fn finish(&mut self) {
        self.attempt(|this| {
            for Attached { role, processes, profiler } in this.attached.drain(..) {
                this.found.insert(role, samples::count(&profiler.finish()?, &processes));
            }
            Ok(())
        });
    }

    fn tell_all(&mut self, tell: fn(&mut Profiler) -> Result<(), Error>) {
        self.attempt(|this| this.attached.iter_mut().try_for_each(|attached| tell(&mut attached.profiler)));
    }

    /// Does nothing after a problem.
    fn attempt(&mut self, act: impl FnOnce(&mut Self) -> Result<(), Error>) {
        if self.problem.is_none()
            && let Err(error) = act(self)
        {
            self.problem = Some(error.to_string());
            self.attached.clear();
        }
    }
}
