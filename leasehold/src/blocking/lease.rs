//! The lease of a hold, for threads that work under it.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::driver::Driver;
use crate::model::lease::LeaseState;
use crate::store::Clock;

/// How often a thread looks at a lease when its client no longer tells.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of a hold, for threads: as the asynchronous [`Lease`](crate::Lease).
///
/// Nothing can stop a thread from outside. So work that goes on for long asks
/// [`state`](Self::state) or [`remaining`](Self::remaining) between its steps, or has another
/// thread wait in [`lost`](Self::lost).
///
/// # Panics
///
/// The calls that wait panic in asynchronous code, as every call of [this module](super).
#[derive(Clone)]
pub struct Lease {
    inner: crate::Lease,
    driver: Arc<Driver>,
}

impl Lease {
    pub(super) fn new(inner: crate::Lease, driver: &Arc<Driver>) -> Self {
        Self {
            inner,
            driver: Arc::clone(driver),
        }
    }

    /// How much the hold may be relied upon at this moment.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        self.inner.state()
    }

    /// Whether the hold is inside its lease: neither lost nor given back.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self.state() {
            LeaseState::Held | LeaseState::Uncertain => true,
            LeaseState::Lost | LeaseState::Released => false,
        }
    }

    /// How long the hold may be relied upon if nothing renews it. Zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Waits until nothing is held any more: true if the hold was lost, false if it was given
    /// back.
    ///
    /// The asynchronous [`lost`](crate::Lease::lost) never returns for a hold that was given
    /// back; a thread could not leave that wait.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn lost(&self) -> bool {
        self.ended_within(Duration::MAX);
        self.state() == LeaseState::Lost
    }

    /// As [`lost`](Self::lost), but for no longer than `wait`: false if the hold was not lost in
    /// that time.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn lost_for(&self, wait: Duration) -> bool {
        self.ended_within(wait);
        self.state() == LeaseState::Lost
    }

    /// Waits until at most `margin` of the lease is left, or nothing is held any more.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn ends_within(&self, margin: Duration) {
        let near = async {
            self.inner.ends_within(margin).await;
            Ok(())
        };
        if self.driver.call(near).is_err() {
            self.run_out(|lease| lease.remaining().saturating_sub(margin));
        }
    }

    /// Waits until nothing is held any more, for no longer than `wait`.
    #[track_caller]
    fn ended_within(&self, wait: Duration) {
        let end = Clock::Boot.now().after(wait);
        let ended = async {
            let ended = self.inner.while_held(pending::<()>());
            Ok(Clock::Boot.limit(end, ended).await)
        };
        if self.driver.call(ended).is_err() {
            self.run_out(|lease| lease.remaining().min(end.since(Clock::Boot.now())));
        }
    }

    /// The client is closed, so nobody renews: waits here for the end of the lease.
    fn run_out(&self, left: impl Fn(&Self) -> Duration) {
        while self.is_held() && !left(self).is_zero() {
            thread::park_timeout(left(self).min(LOOK));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
