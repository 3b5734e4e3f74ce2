//! Samples of the server, the clients and what is between them, during a trial that is profiled.

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_lab::check_perf;
use ciphertoll_model::{Event, Plan, ProfiledRole, Profiling, TrialSpec};

use crate::layer::{Layer, Route};
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

pub(crate) struct ProfileLayer;

impl<M> Layer<M> for ProfileLayer {
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        if plan.profile == Profiling::Off {
            return Ok(());
        }
        match check_perf() {
            Ok(()) => route.can_profile = true,
            Err(unusable) => {
                let message = format!("no profile, only shares that can be computed: {unusable}");
                emit(Event::Warned { message });
            }
        }
        Ok(())
    }

    /// Server, tunnel and proxy have started.
    fn before(
        &mut self,
        request: &TrialRequest<'_>,
        _: &mut TrialSpec,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let server: Vec<i32> =
            route.instance(request.cell).map(|instance| instance.server.pid()).into_iter().collect();
        let middle: Vec<i32> = route.middle.iter().filter_map(process_of).collect();
        if let Some(profiled) = &mut route.profiled {
            profiled.attach(ProfiledRole::Server, &server, &route.site.lab);
            profiled.attach(ProfiledRole::Middle, &middle, &route.site.lab);
        }
        Ok(())
    }

    /// The clients start last.
    fn check(&mut self, route: &mut Route) -> Result<(), TrialError> {
        if let (Some(profiled), Some(load)) = (&mut route.profiled, route.load_process)
            && !profiled.is_attached(ProfiledRole::Client)
        {
            profiled.attach(ProfiledRole::Client, &[load], &route.site.lab);
        }
        Ok(())
    }

    fn window_opens(&mut self, route: &mut Route) {
        if let Some(profiled) = &mut route.profiled {
            profiled.begin();
        }
    }

    fn window_closes(&mut self, route: &mut Route) {
        if let Some(profiled) = &mut route.profiled {
            profiled.pause();
        }
    }

    fn after(
        &mut self,
        _: &TrialRequest<'_>,
        _: Option<&mut M>,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        if let Some(profiled) = &mut route.profiled {
            profiled.finish();
        }
        Ok(())
    }
}

fn process_of(meter: &CpuMeter) -> Option<i32> {
    match meter {
        CpuMeter::Process { pid } | CpuMeter::Tree { pid } => Some(*pid),
        CpuMeter::Cgroup { .. } => None,
    }
}
