//! Who holds a lock.

use std::time::{Duration, SystemTime};

use crate::engine::Core;
use crate::error::Result;
use crate::model::HoldId;
use crate::op::record::Record;

/// One hold of a lock, and what its client says of itself.
///
/// What is not known is `None`: of a holder in another language, of one whose record may not be
/// read, and of one that has held for long after it died. Nobody checks what a client says, so
/// this is for people; no program should decide by it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The identity of the hold, as it stands at the store.
    pub hold: HoldId,
    /// How many times it was entered.
    pub count: u64,
    /// The name of the machine.
    pub host: Option<String>,
    /// The process on that machine.
    pub pid: Option<u32>,
    /// The file name of the program.
    pub program: Option<String>,
    /// What [`ClientBuilder::label`](crate::ClientBuilder::label) said.
    pub label: Option<String>,
    /// Since when the client is there, on the store's clock. The hold may be younger.
    pub since: Option<SystemTime>,
}

impl Holder {
    pub(crate) fn unknown(hold: HoldId, count: u64) -> Self {
        Self {
            hold,
            count,
            host: None,
            pid: None,
            program: None,
            label: None,
            since: None,
        }
    }

    /// Asks the store for what the client of this hold says.
    pub(crate) async fn identify(&mut self, core: &Core) -> Result<()> {
        let Record {
            host,
            pid,
            program,
            label,
            since,
        } = core.record_of(&self.hold).await?;
        let epoch = |ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        (self.host, self.pid, self.program) = (host, pid, program);
        (self.label, self.since) = (label, since.and_then(epoch));
        Ok(())
    }
}
