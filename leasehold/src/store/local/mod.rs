//! The local store: this machine only, several processes, no server.

use std::path::Path;
use std::sync::Arc;

use super::{Events, Flight, Outcome};
use crate::error::{Error, Result};
use crate::model::{HoldId, LeaseTerm, Moment, Name};
use crate::op::Operation;

/// One process's view of the lock files of a directory.
#[derive(Debug)]
pub(crate) struct LocalStore {}

/// The file whose OS lock keeps a hold alive.
#[derive(Debug)]
pub(crate) struct HoldFile {}

impl LocalStore {
    /// Opens `dir`, or the directory that this user has on this machine.
    pub(crate) fn open(_dir: Option<&Path>, _events: Arc<dyn Events>) -> Result<Self> {
        Err(Error::config("not yet"))
    }

    /// The directory, for telling the user.
    pub(crate) fn directory(&self) -> &Path {
        Path::new("")
    }

    pub(crate) async fn run<O: Operation>(
        &self,
        _op: &O,
        _flight: &Flight,
        _until: Moment,
    ) -> Outcome<O::Reply> {
        Outcome::Refused(Error::config("not yet"))
    }

    pub(crate) fn listen(&self, _name: &Name, _channel: &str) {}

    pub(crate) fn unlisten(&self, _name: &Name, _channel: &str) {}

    pub(crate) fn slot(&self, _name: &Name) -> u64 {
        0
    }

    pub(crate) async fn names(&self, _pattern: &str) -> Result<Vec<String>> {
        Ok(vec![])
    }

    /// Makes and locks the hold file, before the hold is asked for.
    pub(crate) fn bind(&self, _hold: &HoldId, _term: LeaseTerm) -> Result<HoldFile> {
        Err(Error::config("not yet"))
    }
}

impl HoldFile {
    /// A copy of the descriptor, for a child process to inherit.
    pub(crate) fn share(&self) -> Result<std::fs::File> {
        Err(Error::config("not yet"))
    }

    /// Gives up this process's copy. Whether another process still has one.
    pub(crate) fn yield_to_others(&self) -> bool {
        false
    }

    /// The hold is over, or from now on lives by its TTL alone: removes the file.
    pub(crate) fn remove(&self) {}
}
