//! Encryption at rest: the files of a server must be encrypted as planned before, during and after every trial.

use ciphertoll_lab::Server;
use ciphertoll_model::{TrialSpec, VoidReason};

use crate::layer::{Layer, Route, Trial};
use crate::trial::{TrialError, TrialRequest};

/// The search of files before the first trial belongs to the start of a server.
pub(crate) struct AtRestLayer;

impl<M: Trial> Layer<M> for AtRestLayer {
    /// An encrypting file system takes CPU time.
    fn before(
        &mut self,
        request: &TrialRequest<'_>,
        _: &mut TrialSpec,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let meter = route.instance(request.cell).and_then(|instance| instance.server.mount_cpu_meter());
        route.middle.extend(meter);
        Ok(())
    }

    /// A problem with its files may be the cause of any other failure of a server.
    fn after(
        &mut self,
        request: &TrialRequest<'_>,
        _: Option<&mut M>,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        route.instance(request.cell).map_or(Ok(()), |instance| check_files(&mut instance.server))
    }
}

/// Voids a trial if its server's files are not encrypted as planned. A dead server is reported elsewhere.
fn check_files(server: &mut Server) -> Result<(), TrialError> {
    match server.check_at_rest() {
        Err(error)
            if server.mount_has_failed() || matches!(error, ciphertoll_lab::Error::NotEncrypted(_)) =>
        {
            Err(TrialError::Void(VoidReason::AtRest { message: error.to_string() }))
        }
        Err(_) | Ok(()) => Ok(()),
    }
}
