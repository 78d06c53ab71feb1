//! The end of a command that held a lock: what is still to be said to the store, but not for ever.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::signals::Signals;

/// How long the store is told about a hold that is over anyway.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long to go on with what is only tidying up.
#[derive(Debug)]
pub(super) struct Parting {
    by: Option<Instant>,
    /// A signal asked us to end; the next one is meant.
    pub(super) hurried: bool,
}

impl Parting {
    pub(super) const fn new() -> Self {
        let (by, hurried) = (None, false);
        Self { by, hurried }
    }

    /// From now on, it ends soon after `left` is over: the store then forgets the hold by itself.
    /// Only the first call counts.
    pub(super) fn begin(&mut self, left: Duration) {
        let by = || Instant::now() + left + FAREWELL;
        self.by.get_or_insert_with(by);
    }

    /// Does `work` unless it takes too long, or a second signal comes: then none.
    pub(super) async fn bear<T>(
        &mut self,
        signals: &mut Signals,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let by = *self.by.get_or_insert_with(Instant::now);
        let mut work = pin!(timeout_at(by, work));
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done.ok(),
                _ = signals.end() => if std::mem::replace(&mut self.hurried, true) {
                    self.by = Some(Instant::now());
                    return None;
                },
            }
        }
    }
}
