//! The reentrant lock, for threads.

use std::sync::Arc;
use std::time::Duration;

use super::driver::Driver;
use super::{Interrupt, Lease, MutexGuard};
use crate::error::{Error, Result};
use crate::lock::{Holder, Status};
use crate::model::owner::Identity;
use crate::model::{HoldId, Owner, Wait, Wire};

/// A lock that one hold has at a time, across processes and machines: for threads.
///
/// As the asynchronous [`Mutex`](crate::Mutex), which says what it promises and when not to use
/// it. Every acquisition is its own owner, on the same thread, too: a second [`lock`](Self::lock)
/// waits for the first.
///
/// # Panics
///
/// Every call that talks to the store panics in asynchronous code.
///
/// # Examples
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::blocking::Client::memory();
/// let mutex = client.mutex("orders:42").ttl(Duration::from_secs(10));
/// let guard = mutex.lock()?;
/// assert!(mutex.try_lock()?.is_none());
/// assert!(mutex.try_lock_for(Duration::from_millis(20))?.is_none());
/// guard.release()?;
/// assert_eq!(mutex.with(|_lease| 6 * 7)?, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    inner: crate::Mutex,
    driver: Arc<Driver>,
}

impl Mutex {
    pub(super) fn new(inner: crate::Mutex, driver: &Arc<Driver>) -> Self {
        let driver = Arc::clone(driver);
        Self { inner, driver }
    }

    /// Takes the lock for `lease` and does not renew it; see
    /// [`fixed_lease`](crate::Mutex::fixed_lease).
    #[must_use]
    pub fn fixed_lease(self, lease: Duration) -> Self {
        let inner = self.inner.fixed_lease(lease);
        Self { inner, ..self }
    }

    /// Takes the lock with this TTL and renews it; see [`ttl`](crate::Mutex::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        let inner = self.inner.ttl(ttl);
        Self { inner, ..self }
    }

    /// Stops renewing after `longest`; see [`max_hold`](crate::Mutex::max_hold).
    #[must_use]
    pub fn max_hold(self, longest: Duration) -> Self {
        let inner = self.inner.max_hold(longest);
        Self { inner, ..self }
    }

    /// How long [`lock`](Self::lock) bears a store that does not answer; see
    /// [`outage`](crate::Mutex::outage).
    #[must_use]
    pub fn outage(self, longest: Duration) -> Self {
        let inner = self.inner.outage(longest);
        Self { inner, ..self }
    }

    /// How a busy lock is waited for; see [`wait`](crate::Mutex::wait).
    #[must_use]
    pub fn wait(self, wait: Wait) -> Self {
        let inner = self.inner.wait(wait);
        Self { inner, ..self }
    }

    /// Takes the lock for `owner`, who enters again where it holds already; see
    /// [`owner`](crate::Mutex::owner). The owner that a thread is comes from
    /// [`thread_owner`](super::Client::thread_owner).
    #[must_use]
    pub fn owner(self, owner: &Owner) -> Self {
        let inner = self.inner.owner(owner);
        Self { inner, ..self }
    }

    /// In which format the lock is kept; see [`wire`](crate::Mutex::wire).
    #[must_use]
    pub fn wire(self, wire: Wire) -> Self {
        let inner = self.inner.wire(wire);
        Self { inner, ..self }
    }

    /// Gives every hold a fencing token; see [`fenced`](crate::Mutex::fenced).
    #[must_use]
    pub fn fenced(self) -> Self {
        let inner = self.inner.fenced();
        Self { inner, ..self }
    }

    /// Waits until it has the lock. No [`Interrupt`] ends this wait.
    ///
    /// # Errors
    ///
    /// As the asynchronous [`lock`](crate::Mutex::lock).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn lock(&self) -> Result<MutexGuard> {
        let guard = self.driver.call(self.inner.lock())?;
        Ok(MutexGuard::new(guard, &self.driver))
    }

    /// As [`lock`](Self::lock), until `interrupt` is asked for: then it holds nothing.
    ///
    /// A request that was already sent is undone by the client's thread. An interrupt that comes
    /// when the lock is already had changes nothing: the guard is returned.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`]; otherwise as [`lock`](Self::lock).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn lock_interruptibly(&self, interrupt: &Interrupt) -> Result<MutexGuard> {
        let guard = self.driver.call(interrupt.unless(self.inner.lock()))?;
        Ok(MutexGuard::new(guard, &self.driver))
    }

    /// Takes the lock if it is free at this moment; none if somebody holds it.
    ///
    /// # Errors
    ///
    /// As the asynchronous [`try_lock`](crate::Mutex::try_lock).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn try_lock(&self) -> Result<Option<MutexGuard>> {
        let guard = self.driver.call(self.inner.try_lock())?;
        Ok(guard.map(|guard| MutexGuard::new(guard, &self.driver)))
    }

    /// Waits for the lock at most `wait`; none if it was busy all that time.
    ///
    /// # Errors
    ///
    /// As the asynchronous [`try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MutexGuard>> {
        let guard = self.driver.call(self.inner.try_lock_for(wait))?;
        Ok(guard.map(|guard| MutexGuard::new(guard, &self.driver)))
    }

    /// As [`try_lock_for`](Self::try_lock_for), until `interrupt` is asked for: then it holds
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`]; otherwise as [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn try_lock_for_interruptibly(
        &self,
        wait: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<MutexGuard>> {
        let wait = interrupt.unless(self.inner.try_lock_for(wait));
        let guard = self.driver.call(wait)?;
        Ok(guard.map(|guard| MutexGuard::new(guard, &self.driver)))
    }

    /// Takes the lock, runs `work` on this thread, gives the lock back; also when `work` panics.
    ///
    /// Unlike the asynchronous [`with`](crate::Mutex::with) it cannot stop `work` when the hold is
    /// lost: `work` must ask its [`Lease`].
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Lost`] if the hold was lost before `work` ended. A
    /// release that the store has not answered yet is no error.
    ///
    /// # Panics
    ///
    /// In asynchronous code, and when `work` does.
    #[track_caller]
    pub fn with<T>(&self, work: impl FnOnce(Lease) -> T) -> Result<T> {
        let guard = self.lock()?;
        let done = work(guard.lease());
        match guard.release() {
            Err(Error::Lost(reason)) => Err(Error::Lost(reason)),
            Ok(()) | Err(_) => Ok(done),
        }
    }

    /// Breaks the lock, whoever holds it, and wakes a waiter. Whether somebody held it.
    ///
    /// # Errors
    ///
    /// As the asynchronous [`force_unlock`](crate::Mutex::force_unlock).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn force_unlock(&self) -> Result<bool> {
        self.driver.call(self.inner.force_unlock())
    }

    /// Whether somebody holds the lock at this moment.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn is_locked(&self) -> Result<bool> {
        self.driver.call(self.inner.is_locked())
    }

    /// Whether `who` holds the lock at this moment; see [`is_held_by`](crate::Mutex::is_held_by).
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn is_held_by(&self, who: &impl Identity) -> Result<bool> {
        self.driver.call(self.inner.is_held_by(who))
    }

    /// Takes over a hold that another process, or an earlier run, has made; see
    /// [`adopt`](crate::Mutex::adopt).
    ///
    /// # Errors
    ///
    /// As the asynchronous one.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn adopt(&self, hold: HoldId) -> Result<MutexGuard> {
        let guard = self.driver.call(self.inner.adopt(hold))?;
        Ok(MutexGuard::new(guard, &self.driver))
    }

    /// Every hold of the lock with what is known of its client; see
    /// [`holders`](crate::Mutex::holders).
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn holders(&self) -> Result<Vec<Holder>> {
        self.driver.call(self.inner.holders())
    }

    /// How many times `who` has entered; 0 if it does not hold the lock.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn hold_count(&self, who: &impl Identity) -> Result<u64> {
        self.driver.call(self.inner.hold_count(who))
    }

    /// What is left of the lease; none if the lock is free or has no TTL.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn remaining(&self) -> Result<Option<Duration>> {
        self.driver.call(self.inner.remaining())
    }

    /// Who holds the lock; none if it is free.
    ///
    /// # Errors
    ///
    /// As the asynchronous [`status`](crate::Mutex::status).
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn status(&self) -> Result<Option<Status>> {
        self.driver.call(self.inner.status())
    }
}
