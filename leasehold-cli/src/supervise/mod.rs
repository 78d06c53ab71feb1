//! Who ends the command when `run` cannot.
//!
//! `run` starts this program once more, as a supervisor in a process group of its own, and the
//! supervisor starts the command in another. It needs no store: `run` tells it until when the
//! lease lasts, and it ends the command before that, whatever becomes of `run`.

mod attendant;
mod clock;
mod link;
mod processes;
mod supervisor;
pub(crate) mod terminal;
mod wire;

pub(crate) use attendant::{Attendant, Job};
pub(crate) use supervisor::work;
pub(crate) use wire::{Order, Report};

/// How long before the end of the lease everything is killed, in milliseconds; half the grace if
/// that is less.
const LEAD: u64 = 500;
/// How long is tried to kill before those that cannot be killed, such as root's, are left alone:
/// milliseconds.
const STUBBORN: u64 = 2_000;
