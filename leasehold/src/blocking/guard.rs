//! The guard of a mutex, for threads.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use super::Lease;
use super::driver::Driver;
use crate::error::Result;
use crate::model::lease::LeaseState;
use crate::model::{HoldId, Token};

/// A hold of a [`Mutex`](super::Mutex), given back when dropped.
///
/// As the asynchronous [`MutexGuard`](crate::MutexGuard), which says what a hold promises. It may
/// be dropped on any thread, in asynchronous code, and after its client.
///
/// # Release
///
/// In order of preference: [`with`](super::Mutex::with) and [`release`](Self::release) report;
/// dropping the guard queues the release, which the client's thread sends. The program must live
/// until it has: [`close`](super::Client::close) waits for that.
///
/// # Panics
///
/// The calls that talk to the store or wait panic in asynchronous code.
#[must_use = "the lock is given back when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct MutexGuard {
    // Goes before the driver: the last release is queued before the thread is told to end.
    inner: crate::MutexGuard,
    driver: Arc<Driver>,
}

impl MutexGuard {
    pub(super) fn new(inner: crate::MutexGuard, driver: &Arc<Driver>) -> Self {
        Self {
            inner,
            driver: Arc::clone(driver),
        }
    }

    /// Gives the lock back, and says whether it was held all the while; see
    /// [`release`](crate::MutexGuard::release).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::Error::Lost) if the hold had ended before;
    /// [`Timeout`](crate::Error::Timeout), [`Unavailable`](crate::Error::Unavailable) and
    /// [`Refused`](crate::Error::Refused) if the store did not take the release yet;
    /// [`Closed`](crate::Error::Closed) if the client is closed.
    ///
    /// # Panics
    ///
    /// In asynchronous code. The lock is given back all the same.
    #[track_caller]
    pub fn release(self) -> Result<()> {
        self.driver.call(self.inner.release())
    }

    /// Waits until the hold is lost; returns at once if it is lost already.
    ///
    /// For a thread beside the work, which has a [lease](Self::lease): that wait ends with a
    /// release, too.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn lost(&self) {
        self.lease().lost();
    }

    /// As [`lost`](Self::lost), but for no longer than `wait`: false if the hold was not lost in
    /// that time.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    #[must_use]
    pub fn lost_for(&self, wait: Duration) -> bool {
        self.lease().lost_for(wait)
    }

    /// Whether the hold is inside its lease, so that nobody else can have the lock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.lease().is_held()
    }

    /// How much the hold may be relied upon at this moment.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        self.inner.lease().state()
    }

    /// The lease, to be passed to whoever works under this hold.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease::new(self.inner.lease(), &self.driver)
    }

    /// The identity of this hold, as it stands at the store.
    #[must_use]
    pub fn hold_id(&self) -> &HoldId {
        self.inner.hold_id()
    }

    /// The fencing token of this hold; see [`token`](crate::MutexGuard::token).
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.inner.token()
    }

    /// Lets a fixed lease last for `lease` from now; see [`extend`](crate::MutexGuard::extend).
    ///
    /// # Errors
    ///
    /// [`Config`](crate::Error::Config) for a lease that is renewed anyway or a length that cannot
    /// work; [`Lost`](crate::Error::Lost) if the hold has ended. After
    /// [`Timeout`](crate::Error::Timeout) or [`Unavailable`](crate::Error::Unavailable) the lease
    /// may or may not have been extended.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn extend(&self, lease: Duration) -> Result<()> {
        self.driver.call(self.inner.extend(lease))
    }

    /// Another guard of the same hold. The lock is given back when the last one goes.
    pub fn reenter(&self) -> Self {
        Self::new(self.inner.reenter(), &self.driver)
    }

    /// Lets the hold go on without this client; see [`forget`](crate::MutexGuard::forget).
    #[must_use]
    pub fn forget(self) -> HoldId {
        self.inner.forget()
    }

    /// On the local store, a descriptor that keeps this hold alive; see
    /// [`hold_file`](crate::MutexGuard::hold_file).
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::Error::Unavailable) if the descriptor cannot be copied.
    pub fn hold_file(&self) -> Result<Option<File>> {
        self.inner.hold_file()
    }

    /// As [`release`](Self::release), unless another process still has the hold file open. Whether
    /// the lock stays; see [`hand_over`](crate::MutexGuard::hand_over).
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn hand_over(self) -> Result<bool> {
        self.driver.call(self.inner.hand_over())
    }
}

impl fmt::Debug for MutexGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
