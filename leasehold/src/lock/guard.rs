//! The guard of a mutex.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use super::Lease;
use crate::engine::{Core, Grant, Hold, Stake};
use crate::error::{Error, Result};
use crate::model::{HoldId, LeaseTerm, Token, Ttl};
use crate::op::renew::Renewal;

/// A hold of a [`Mutex`](crate::Mutex), given back when dropped.
///
/// It guards no data: a lock over a network can be lost while you hold it. Watch [`lost`]
/// or work inside [`with`], and let the resource check a token where a late write does harm.
///
/// # Release
///
/// In order of preference: [`with`] releases and reports; [`release`] reports; dropping the guard
/// stops the renewal at once and queues the release, which a task of the client sends. Dropping
/// needs no runtime, never blocks and never fails. If the client's runtime has ended, the lock
/// stays until its TTL. Several guards of one hold come from [`reenter`]; the last one releases.
///
/// [`lost`]: Self::lost
/// [`with`]: crate::Mutex::with
/// [`release`]: Self::release
/// [`reenter`]: Self::reenter
#[must_use = "the lock is given back when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct MutexGuard {
    held: Arc<Held>,
}

/// What all guards of one hold share. The last one to go leaves the hold to the reaper.
struct Held {
    core: Arc<Core>,
    /// What is to be given back.
    part: Option<Part>,
    /// The hold, for those who only look.
    seen: Arc<Hold>,
}

/// Which part of a hold its guards have.
enum Part {
    Whole(Arc<Hold>),
    /// One entry of a named owner; gives itself back.
    Entry(Stake),
}

impl Drop for Held {
    fn drop(&mut self) {
        match self.part.take() {
            Some(Part::Whole(hold)) if !hold.is_detached() => {
                self.core.end(&hold);
                self.core.debts.leave(&hold);
            }
            Some(Part::Whole(_) | Part::Entry(_)) | None => {}
        }
    }
}

impl MutexGuard {
    pub(crate) fn new(core: Arc<Core>, Grant { hold, stake }: Grant) -> Self {
        let seen = Arc::clone(&hold);
        let part = Some(stake.map_or(Part::Whole(hold), Part::Entry));
        Self {
            held: Arc::new(Held { core, part, seen }),
        }
    }

    /// Gives the lock back, and says whether it was held all the while.
    ///
    /// Repeats the request while no answer comes, for as long as the client's call timeout. After
    /// that, the client goes on trying in the background for as long as the TTL may keep the lock.
    /// A release whose answer got lost and that finds nothing when repeated counts as released; if
    /// somebody broke the lock in just that moment, you are not told.
    ///
    /// With other guards from [`reenter`](Self::reenter) around, this one just goes. With other
    /// entries of its [owner](crate::Owner) around, it takes one off the count at the store.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the hold had ended before. [`Error::Timeout`], [`Error::Unavailable`]
    /// and [`Error::Refused`] if the store did not take the release yet.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer, not the release: the client finishes it.
    pub async fn release(self) -> Result<()> {
        let Some(mut last) = Arc::into_inner(self.held) else {
            return Ok(());
        };
        let core = Arc::clone(&last.core);
        match last.part.take() {
            Some(Part::Whole(hold)) if hold.is_detached() => {
                hold.loss().map_or(Ok(()), |why| Err(Error::Lost(why)))
            }
            Some(Part::Whole(hold)) => core.release(hold).await,
            Some(Part::Entry(stake)) => stake.leave().await,
            None => Ok(()),
        }
    }

    /// Returns when the hold is lost; at once if it is lost already.
    ///
    /// Lost means: the store said so, or the lease ran out without a renewal. It is latched.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        self.held.seen.lost().await;
    }

    /// The lease, to be passed to whoever works under this hold.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease::of(&self.held.seen)
    }

    /// Runs `work` until it is done or the hold is lost; then `work` is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the hold was lost first.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// let client = leasehold::Client::memory();
    /// let guard = client.mutex("report").lock().await?;
    /// let sum = guard.while_held(async { 40 + 2 }).await?;
    /// assert_eq!(sum, 42);
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.lease().while_held(work).await
    }

    /// The identity of this hold, as it stands at the store.
    #[must_use]
    pub fn hold_id(&self) -> &HoldId {
        &self.held.seen.claim.id
    }

    /// The fencing token of this hold; none unless the mutex was [`fenced`](crate::Mutex::fenced).
    ///
    /// It stays the same for as long as the hold lasts, also in what [`reenter`](Self::reenter)
    /// gives, and is still told after a loss: a write that carries it is then refused by a
    /// resource that has seen the next one's.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.held.seen.token
    }

    /// Lets a fixed lease last for `lease` from now. Never shortens it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a lease that is renewed anyway or a length that cannot work;
    /// [`Error::Lost`] if the hold has ended. After [`Error::Timeout`] or [`Error::Unavailable`]
    /// the lease may or may not have been extended; it is [uncertain] until the next answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was or extended; only the former is relied upon.
    ///
    /// [uncertain]: crate::LeaseState::Uncertain
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        let ttl = Ttl::fixed(lease)?;
        let (core, hold) = (&self.held.core, &self.held.seen);
        if matches!(hold.term(), LeaseTerm::Renewed { .. }) {
            return Err(Error::config("a renewed lease is not extended by hand"));
        }
        if let Some(reason) = hold.loss() {
            return Err(Error::Lost(reason));
        }
        let (name, id) = (hold.claim.name.clone(), hold.claim.id.clone());
        let renewal = Renewal {
            name,
            hold: id,
            ttl: Some(ttl),
        };
        hold.may_last(ttl);
        let asked = core.shared.clock.now();
        let until = core.call_limit().min(hold.deadline());
        let call = core.shared.renew(hold.claim.kind, renewal, until);
        match core.shared.life.while_open(call).await {
            Ok(true) => {
                hold.confirmed(asked, Some(ttl));
                core.shared.watchdog.watch(hold);
            }
            Ok(false) => hold.lose("the store no longer had it"),
            Err(error) => {
                hold.distrust();
                if !matches!(error, Error::Closed(_)) {
                    core.shared.watchdog.watch(hold);
                }
                return hold
                    .loss()
                    .map_or(Err(error), |reason| Err(Error::Lost(reason)));
            }
        }
        hold.loss()
            .map_or(Ok(()), |reason| Err(Error::Lost(reason)))
    }

    /// Another guard of the same hold. The lock is given back when the last one goes.
    ///
    /// This is re-entry by showing that you hold: nothing is sent, and the count at the store
    /// stays as it is. A second [`lock`](crate::Mutex::lock) would wait for the first.
    pub fn reenter(&self) -> Self {
        Self {
            held: Arc::clone(&self.held),
        }
    }

    /// Lets the hold go on without this client: it is no longer renewed, lives by its TTL alone,
    /// and nobody releases it on drop. Returns its identity.
    ///
    /// Other guards of the same hold no longer release it either, those of its owner included.
    #[must_use]
    pub fn forget(self) -> HoldId {
        let hold = &self.held.seen;
        hold.detach();
        self.held.core.shared.presence.leaves(hold.end());
        self.held.core.end(hold);
        hold.claim.settle();
        hold.claim.id.clone()
    }

    /// On the local store, a descriptor whose OS lock keeps this hold alive, for a child process
    /// to inherit: the hold then lasts until the child has closed it, too. None on other stores.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the descriptor cannot be copied.
    pub fn hold_file(&self) -> Result<Option<File>> {
        self.held
            .seen
            .claim
            .binding
            .as_ref()
            .map(|binding| binding.share())
            .transpose()
    }

    /// As [`release`](Self::release), unless another process still has the [hold file] open: then
    /// the lock stays until that process closes it. Whether it stays.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// [hold file]: Self::hold_file
    pub async fn hand_over(self) -> Result<bool> {
        let hold = &self.held.seen;
        let inherited = |binding: &crate::store::Binding| binding.yield_to_others();
        if hold.loss().is_none() && hold.claim.binding.as_ref().is_some_and(inherited) {
            hold.detach();
            self.held.core.shared.presence.leaves(hold.end());
            self.held.core.end(hold);
            return Ok(true);
        }
        self.release().await.map(|()| false)
    }
}

impl fmt::Debug for MutexGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hold = &self.held.seen;
        f.debug_struct("MutexGuard")
            .field("name", &hold.claim.name)
            .field("hold", &hold.claim.id)
            .field("remaining", &hold.remaining())
            .finish()
    }
}
