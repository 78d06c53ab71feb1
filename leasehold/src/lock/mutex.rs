//! The reentrant lock.

use std::sync::Arc;
use std::time::Duration;

use super::{Holder, Lease, MutexGuard, Status};
use crate::engine::{Core, Kind, Patience, Request};
use crate::error::{Error, Result};
use crate::model::{HoldId, Identity, LeaseTerm, Owner, Ttl, Wait, Who, Wire};
use crate::op::{mutex, plain};

/// A lock that one hold has at a time, across processes and machines.
///
/// # When not to use it
///
/// Inside one process, `tokio::sync::Mutex` is faster and cannot be lost. Where a write that comes
/// late does harm, a lease is not enough: the resource must refuse it, by a fencing token or a
/// condition of its own. Where one server is not available enough, see the manual's guarantees.
///
/// # Lease
///
/// The lock lives on the server for its TTL (30 s unless set) and is renewed every third of it
/// until it is released. [`fixed_lease`] takes it for a time that is not renewed.
///
/// # Reentrancy
///
/// Every acquisition is its own owner: a second `lock()` in the same task waits for the first.
/// [`MutexGuard::reenter`] enters again, and so does a handle with the same [`owner`](Self::owner).
///
/// # Fairness
///
/// Waiters of one client go in order. Between clients whoever asks first after a release gets it.
///
/// # Settings
///
/// Setters consume and return the handle, and never fail: the first call that takes the lock
/// reports a setting that cannot work as [`Error::Config`], before anything is sent.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::Client::memory();
/// let mutex = client.mutex("orders:42");
/// let guard = mutex.lock().await?;
/// assert!(mutex.try_lock().await?.is_none());
/// assert!(mutex.try_lock_for(Duration::from_millis(20)).await?.is_none());
/// guard.release().await?;
/// let total = mutex.with(async |_lease| 6 * 7).await?;
/// assert_eq!(total, 42);
/// # Ok(())
/// # }
/// ```
///
/// [`fixed_lease`]: Self::fixed_lease
#[derive(Clone, Debug)]
pub struct Mutex {
    core: Arc<Core>,
    name: String,
    lease: Length,
    max_hold: Option<Duration>,
    outage: Duration,
    wait: Wait,
    owner: Option<Owner>,
    wire: Wire,
    fenced: bool,
}

/// How long the lease is to be, as it was set; the last setter wins.
#[derive(Clone, Copy, Debug)]
enum Length {
    Fixed(Duration),
    Renewed(Duration),
}

impl Mutex {
    pub(crate) fn new(core: Arc<Core>, name: &str) -> Self {
        #[cfg(not(feature = "test-util"))]
        let (wire, fenced) = (Wire::default(), false);
        #[cfg(feature = "test-util")]
        let (wire, fenced) = core.flavour.get().copied().unwrap_or_default();
        Self {
            core,
            name: name.to_owned(),
            lease: Length::Renewed(Ttl::DEFAULT.as_duration()),
            max_hold: None,
            outage: Duration::from_secs(30),
            wait: Wait::default(),
            owner: None,
            wire,
            fenced,
        }
    }

    /// Takes the lock for `lease` and does not renew it, as Redisson's `leaseTime`.
    ///
    /// Undoes an earlier [`ttl`](Self::ttl). At least 10 ms, at most a hundred years.
    #[must_use]
    pub fn fixed_lease(mut self, lease: Duration) -> Self {
        self.lease = Length::Fixed(lease);
        self
    }

    /// Takes the lock with this TTL and renews it every third of it. 30 s unless set.
    ///
    /// This is how long others wait when a holder dies. Undoes an earlier
    /// [`fixed_lease`](Self::fixed_lease). At least 150 ms.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lease = Length::Renewed(ttl);
        self
    }

    /// Stops renewing when the lock was held for `longest`; it is then lost within one TTL.
    #[must_use]
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.max_hold = Some(longest);
        self
    }

    /// How long [`lock`](Self::lock) bears a store that does not answer. 30 s unless set.
    #[must_use]
    pub fn outage(mut self, longest: Duration) -> Self {
        self.outage = longest;
        self
    }

    /// How a busy lock is waited for: told by the store, or asking again and again.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Takes the lock for `owner`, who enters again at once where it holds already.
    ///
    /// Each entry is counted at the store and has a guard of its own; the lock is free when the
    /// last one is given back. All entries share one lease: it is lost for all of them, it is
    /// renewed from the first entry without a [`fixed_lease`](Self::fixed_lease) to the end, and
    /// no entry shortens it. An owner of another client, and a [`max_hold`](Self::max_hold), are
    /// refused as [`Error::Config`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// let client = leasehold::Client::memory();
    /// let owner = client.owner();
    /// let mutex = client.mutex("orders:42").owner(&owner);
    /// let outer = mutex.lock().await?;
    /// let inner = mutex.lock().await?; // waits for nobody
    /// assert_eq!(mutex.hold_count(&owner).await?, 2);
    /// inner.release().await?;
    /// assert!(mutex.is_held_by(&owner).await?);
    /// outer.release().await?;
    /// assert!(!mutex.is_locked().await?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// In which format the lock is kept, and so with whose libraries it is shared.
    ///
    /// All who use one name must use one format.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Client, Wire};
    ///
    /// let client = Client::memory();
    /// // SET orders:42 TOKEN NX PX 30000
    /// let guard = client.mutex("orders:42").wire(Wire::Plain).lock().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn wire(mut self, wire: Wire) -> Self {
        self.wire = wire;
        self
    }

    /// Gives every hold a [`Token`](crate::Token) higher than those of all fenced holds before it;
    /// see [`MutexGuard::token`].
    ///
    /// Holders who do not ask for one, in whatever program, get none, and nothing that they write
    /// can be told apart by it. So let all holders of the name ask.
    ///
    /// Tokens rise for as long as the server's clock is not set back by more than it has lost: see
    /// [`manual::fencing`](crate::manual::fencing).
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// Waits until it has the lock.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a name or setting that cannot work. [`Error::Unavailable`] or
    /// [`Error::Timeout`] when the store stayed away for the [`outage`](Self::outage).
    /// [`Error::Refused`] when a right is missing. [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing: a request that was already sent is undone in the
    /// background. It loses the place in the local queue.
    pub async fn lock(&self) -> Result<MutexGuard> {
        let patience = Patience::Outage(self.outage);
        self.acquire(patience)
            .await?
            .ok_or(Error::Closed("the wait ended without a lock"))
    }

    /// Takes the lock if it is free at this moment; none if somebody holds it.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), after the client's call timeout instead of the outage.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<MutexGuard>> {
        self.acquire(Patience::Once).await
    }

    /// Waits for the lock at most `wait`; none if it was busy all that time.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). A store that does not answer is an error at the end of `wait`,
    /// not a "busy".
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MutexGuard>> {
        if wait.is_zero() {
            return self.try_lock().await;
        }
        self.acquire(Patience::For(wait)).await
    }

    /// Takes the lock, runs `work`, gives the lock back.
    ///
    /// `work` is dropped when the hold is lost. It gets the lease, to ask for the time left.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Lost`] if the hold was lost before `work` ended, or was
    /// found to be gone when it was given back. A release that the store has not answered yet is
    /// no error: the work was done under the lock, and the client finishes the release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and gives the lock back.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        let guard = self.lock().await?;
        let lease = guard.lease();
        let done = lease.while_held(work(lease.clone())).await?;
        match guard.release().await {
            Err(Error::Lost(reason)) => Err(Error::Lost(reason)),
            Ok(()) | Err(_) => Ok(done),
        }
    }

    /// Breaks the lock, whoever holds it, and wakes a waiter. Whether somebody held it.
    ///
    /// The holder learns of it at its next renewal, so for a while two may work.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for a key that is no mutex of this [`wire`](Self::wire): it is left
    /// alone. In the plain format any text of at most 1 KiB is taken for a lock. After
    /// [`Error::Timeout`] the lock may have been broken; it is not tried again, since that might
    /// break the next one's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves it open whether the lock was broken.
    pub async fn force_unlock(&self) -> Result<bool> {
        let name = self.core.name(&self.name)?;
        match self.wire {
            Wire::Redisson => self.core.ask(&mutex::ForceUnlock { name }).await,
            Wire::Plain => self.core.ask(&plain::ForceUnlock { name }).await,
        }
    }

    /// Whether somebody holds the lock at this moment.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn is_locked(&self) -> Result<bool> {
        Ok(self.inspect().await?.is_some())
    }

    /// Whether a hold, or an [`Owner`] of this client, has the lock. Asked of the store.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`Error::Config`] for an owner of another client.
    pub async fn is_held_by(&self, who: &impl Identity) -> Result<bool> {
        Ok(self.hold_count(who).await? > 0)
    }

    /// How many times a hold, or an [`Owner`] of this client, has entered; 0 if it does not hold
    /// the lock. Asked of the store.
    ///
    /// # Errors
    ///
    /// As [`is_held_by`](Self::is_held_by).
    pub async fn hold_count(&self, who: &impl Identity) -> Result<u64> {
        let name = self.core.name(&self.name)?;
        let hold = match who.who() {
            Who::Hold(hold) => Some(hold.clone()),
            Who::Owner(owner) => {
                self.check_owner(owner)?;
                self.core.tenures.hold(owner, Kind::Mutex, &name)
            }
        };
        let status = self.inspect().await?;
        Ok(status
            .filter(|status| Some(&status.hold) == hold.as_ref())
            .map_or(0, |status| status.count))
    }

    /// Takes over a hold that another process, or an earlier run, has made.
    ///
    /// From now on this client renews it, as long as this handle says, tells of its loss, and
    /// gives it back, whatever its count. With a [`fixed_lease`](Self::fixed_lease) it only looks:
    /// the hold lasts for what is left of its TTL, and may be [extended]. The one who had it
    /// should [forget] it; if it does not, and gives it back, it is lost here. Its token, if it has
    /// one, is known to that one only: pass it along with the hold.
    ///
    /// On the local store a hold that is bound to another process stays bound to that process: it
    /// ends at once when that process does. One that is not bound lives by its TTL and by the
    /// renewals of this client.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if `hold` does not have the lock. [`Error::Config`] for a setting that
    /// cannot work, for a handle with an [`owner`](Self::owner), and for a hold that this client
    /// has already. Otherwise as every call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the hold to the one who had it; it may have been renewed once.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// # let memory = leasehold::Memory::new();
    /// # let one = leasehold::Client::builder().memory(&memory);
    /// # let two = leasehold::Client::builder().memory(&memory);
    /// let hold = one.mutex("import").lock().await?.forget(); // passed to another process
    /// let guard = two.mutex("import").adopt(hold).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [extended]: MutexGuard::extend
    /// [forget]: MutexGuard::forget
    pub async fn adopt(&self, hold: HoldId) -> Result<MutexGuard> {
        if self.owner.is_some() {
            return Err(Error::config("an adopted hold is no owner's"));
        }
        let grant = self.core.adopt(&self.request()?, hold).await?;
        Ok(MutexGuard::new(Arc::clone(&self.core), grant))
    }

    /// What is left of the lease; none if the lock is free or has no TTL.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn remaining(&self) -> Result<Option<Duration>> {
        Ok(self.inspect().await?.and_then(|status| status.remaining))
    }

    /// Who holds the lock and for how long; none if it is free.
    ///
    /// This asks twice: for the lock, and for what the holder's client says of itself. The second
    /// answer is best effort: without it, that part of the status is unknown.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for a key that is no mutex of this [`wire`](Self::wire); otherwise as
    /// every call.
    pub async fn status(&self) -> Result<Option<Status>> {
        let mut status = self.inspect().await?;
        if let Some(status) = &mut status {
            status.holder.identify(&self.core).await?;
        }
        Ok(status)
    }

    /// Every hold of the lock with what is known of its client; empty if it is free.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Client, Memory};
    ///
    /// let client = Client::builder().label("nightly").memory(&Memory::new());
    /// let mutex = client.mutex("report");
    /// let guard = mutex.lock().await?;
    /// for holder in mutex.holders().await? {
    ///     assert_eq!(&holder.hold, guard.hold_id());
    ///     assert_eq!(holder.pid, Some(std::process::id()));
    ///     assert_eq!(holder.label.as_deref(), Some("nightly"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Holder>> {
        let status = self.status().await?;
        Ok(status.map(|status| status.holder).into_iter().collect())
    }

    async fn inspect(&self) -> Result<Option<Status>> {
        let name = self.core.name(&self.name)?;
        match self.wire {
            Wire::Redisson => {
                let seen = self.core.ask(&mutex::Inspect { name }).await?;
                Status::read(&self.name, &seen)
            }
            Wire::Plain => {
                let seen = self.core.ask(&plain::Inspect { name }).await?;
                Ok(Status::read_plain(&self.name, seen))
            }
        }
    }

    async fn acquire(&self, patience: Patience) -> Result<Option<MutexGuard>> {
        let request = self.request()?;
        let grant = self.core.acquire(&request, patience).await?;
        let guard = grant.map(|grant| MutexGuard::new(Arc::clone(&self.core), grant));
        // An owner's further entries have the token of its first, so that one must have asked.
        if self.fenced && guard.as_ref().is_some_and(|guard| guard.token().is_none()) {
            return Err(Error::config(
                "the owner's first entry has no fencing token",
            ));
        }
        Ok(guard)
    }

    fn check_owner(&self, owner: &Owner) -> Result<()> {
        if owner.belongs_to(self.core.id) {
            Ok(())
        } else {
            Err(Error::config("the owner belongs to another client"))
        }
    }

    /// Checks every setting.
    fn request(&self) -> Result<Request> {
        let max_hold = self.max_hold;
        let term = match self.lease {
            Length::Fixed(_) if max_hold.is_some() => {
                return Err(Error::config(
                    "a fixed lease is not renewed, so it has no max_hold",
                ));
            }
            Length::Fixed(lease) => LeaseTerm::Fixed(Ttl::fixed(lease)?),
            Length::Renewed(ttl) => LeaseTerm::Renewed {
                ttl: Ttl::renewed(ttl)?,
                max_hold,
            },
        };
        if max_hold == Some(Duration::ZERO) || self.outage.is_zero() {
            return Err(Error::config("max_hold and outage must be more than zero"));
        }
        if let Wait::Poll(backoff) = &self.wait {
            backoff.check()?;
        }
        if let Some(owner) = &self.owner {
            self.check_owner(owner)?;
            if self.wire == Wire::Plain {
                return Err(Error::config(
                    "the plain format counts no entries of an owner",
                ));
            }
            if max_hold.is_some() {
                return Err(Error::config(
                    "an owner's lease is shared by its entries, so it has no max_hold",
                ));
            }
        }
        let (name, wait) = (self.core.name(&self.name)?, self.wait.clone());
        Ok(Request {
            kind: Kind::of_mutex(self.wire),
            fenced: self.fenced,
            name,
            term,
            wait,
            owner: self.owner.clone(),
        })
    }
}
