//! What a client says of itself, shared by whoever writes it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::Ttl;
use crate::op::record::WriteRecord;

/// The record of this client, as it would be written now. The store writes it with the handshake
/// of every connection, the engine lets it live on.
#[derive(Debug)]
pub(crate) struct Introduction(Mutex<Option<WriteRecord>>);

impl Introduction {
    pub(crate) fn new(record: WriteRecord) -> Self {
        Self(Mutex::new(Some(record)))
    }

    /// The record; none once it was withdrawn.
    pub(crate) fn record(&self) -> Option<WriteRecord> {
        self.lock().clone()
    }

    /// From now on it is written with this TTL.
    pub(crate) fn lasts(&self, ttl: Ttl) {
        if let Some(record) = &mut *self.lock() {
            record.ttl = ttl;
        }
    }

    /// The store said since when this client is there: that stays, whatever it forgets.
    pub(crate) fn written(&self, since: Option<u64>) {
        if let Some(record) = &mut *self.lock() {
            record.since = record.since.or(since);
        }
    }

    /// From now on it is not written any more. Its last state.
    pub(crate) fn withdraw(&self) -> Option<WriteRecord> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<WriteRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
