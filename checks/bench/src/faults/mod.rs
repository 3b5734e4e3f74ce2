//! The fault matrix: what a run does if one of its processes is killed or stopped, or loses a resource, in the middle of a
//! trial. The trial must be voided with a reason, or the run must end with one line and an exit code; `resume` must
//! complete the run; and nothing may be left. [`matrix`] lists the pairs, [`session`] runs the program, [`injection`]
//! causes a fault, [`leftovers`] looks for what is left, [`row`] checks a pair.

mod clock;
mod disk;
pub mod injection;
mod leftovers;
pub mod matrix;
mod process;
pub mod row;
pub mod session;
mod target;
