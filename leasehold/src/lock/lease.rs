//! The lease of a hold, for those who work under it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Hold;
use crate::error::{Error, Result};
use crate::model::lease::LeaseState;

/// What is known of a hold: state, time left, and the signal of its loss. Cheap to clone.
///
/// A lease keeps nothing alive: when the guard is gone, it says [`LeaseState::Released`]. It tells
/// you when to stop; it does not make a slow write harmless. For that, the resource must check a
/// fencing token.
#[derive(Clone)]
pub struct Lease {
    hold: Arc<Hold>,
}

impl Lease {
    pub(crate) fn of(hold: &Arc<Hold>) -> Self {
        Self {
            hold: Arc::clone(hold),
        }
    }

    /// How much the hold may be relied upon at this moment.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        self.hold.state()
    }

    /// How long the hold may be relied upon if nothing renews it. Zero once it is lost.
    ///
    /// Counted from before the last request that the store confirmed, less 1 % and 2 ms.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Returns when the hold is lost; at once if it is lost already.
    ///
    /// Giving the hold back is no loss: after that, this never returns.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. The loss is latched, so a later call returns at once.
    pub async fn lost(&self) {
        self.hold.lost().await;
    }

    /// Returns when at most `margin` of the lease is left, or nothing is held any more.
    ///
    /// The time to stop for work that needs `margin` to stop. A renewal moves it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ends_within(&self, margin: Duration) {
        self.hold.ends_within(margin).await;
    }

    /// Runs `work` until it is done or nothing is held any more; then `work` is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the hold ended first, or was found to have ended with `work`.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let done = tokio::select! {
            biased;
            () = self.hold.ended() => None,
            done = work => Some(done),
        };
        match (done, self.hold.over()) {
            (Some(done), None) => Ok(done),
            (_, reason) => Err(Error::Lost(reason.unwrap_or("its lease ran out"))),
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.hold.claim.name)
            .field("hold", &self.hold.claim.id)
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish()
    }
}
