//! Tenures: what a named owner has of one lock, from its first entry to its last leaving.
//!
//! The count at the store follows the stakes that this client has given out, one step at a time.
//! What a step came to may be unknown: the next one looks first. No step makes a hold that is not
//! there, and the one that frees it may come at any time, so a step that arrives late does no harm.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use super::{Core, Hold, Kind, Shared};
use crate::error::{Error, Result};
use crate::model::{HoldId, LeaseTerm, Moment, Name, Owner};
use crate::op::mutex::{Acquired, Released};
use crate::op::renew::{Batch, Renewal};
use crate::store::{Clock, Outcome};

/// How often a count that is not the one left there is read anew.
const TRIES: u32 = 8;

/// Which owner, at which lock.
type Key = (Owner, Kind, Name);

/// The posts where somebody is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenures(Arc<Mutex<HashMap<Key, Weak<Post>>>>);

/// The place of one owner at one lock, kept while the owner holds or asks.
#[derive(Debug)]
pub(crate) struct Post {
    key: Key,
    posts: Tenures,
    /// One request for the first entry at a time, so that whoever comes behind finds its outcome.
    opening: tokio::sync::Mutex<()>,
    tenure: watch::Sender<Weak<Tenure>>,
}

/// One hold with everybody who entered it.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) hold: Arc<Hold>,
    /// How many are in, or on their way in. At 0 it is over, and nobody enters any more.
    stakes: Mutex<u64>,
    /// One step at a time, in order.
    steps: tokio::sync::Mutex<Steps>,
    _post: Arc<Post>,
}

/// What is known of the count at the store.
#[derive(Debug)]
struct Steps {
    count: u64,
    /// A step was begun and its outcome is not known.
    doubt: bool,
}

/// The right of one entry. Dropped, it steps back in the background; the last one frees the lock.
#[derive(Debug)]
pub(crate) struct Stake {
    core: Arc<Core>,
    tenure: Option<Arc<Tenure>>,
}

/// A hold, and which part of it was got.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) hold: Arc<Hold>,
    /// None for a hold that is nobody else's.
    pub(crate) stake: Option<Stake>,
}

impl Tenures {
    /// The place of an owner at a lock.
    pub(crate) fn post(&self, owner: &Owner, kind: Kind, name: &Name) -> Arc<Post> {
        let key = (owner.clone(), kind, name.clone());
        let mut posts = self.lock();
        if let Some(post) = posts.get(&key).and_then(Weak::upgrade) {
            return post;
        }
        let post = Arc::new(Post {
            key: key.clone(),
            posts: self.clone(),
            opening: tokio::sync::Mutex::default(),
            tenure: watch::Sender::new(Weak::new()),
        });
        posts.insert(key, Arc::downgrade(&post));
        post
    }

    /// The hold by which an owner has a lock.
    pub(crate) fn hold(&self, owner: &Owner, kind: Kind, name: &Name) -> Option<HoldId> {
        let tenure = self.post(owner, kind, name).current()?;
        Some(tenure.hold.claim.id.clone())
    }

    /// How many posts there are.
    #[cfg(feature = "test-util")]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Weak<Post>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        let mut posts = self.posts.lock();
        // The next one may have come already.
        if posts
            .get(&self.key)
            .is_some_and(|post| post.strong_count() == 0)
        {
            posts.remove(&self.key);
        }
    }
}

impl Post {
    /// The right to ask for the first entry, or to see what became of it.
    pub(crate) async fn opening(
        &self,
        clock: Clock,
        until: Moment,
    ) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        let opening = clock.limit(until, self.opening.lock()).await;
        opening.ok_or_else(unanswered)
    }

    fn current(&self) -> Option<Arc<Tenure>> {
        self.tenure.borrow().upgrade()
    }

    /// Whether the owner holds, as far as is known here.
    pub(crate) fn is_open(&self) -> bool {
        self.current().is_some_and(|tenure| tenure.is_open())
    }

    /// Returns when the owner holds.
    pub(crate) async fn opened(&self) {
        let mut tenure = self.tenure.subscribe();
        let open = |tenure: &Weak<Tenure>| tenure.upgrade().is_some_and(|now| now.is_open());
        let _ = tenure.wait_for(open).await;
    }

    /// A right to enter what the owner holds already.
    pub(crate) fn stake(&self, core: &Arc<Core>) -> Option<Stake> {
        let tenure = self.current()?;
        let mut stakes = tenure.stakes();
        if *stakes == 0 || !tenure.hold.is_usable() {
            return None;
        }
        *stakes += 1;
        drop(stakes);
        let core = Arc::clone(core);
        let tenure = Some(tenure);
        Some(Stake { core, tenure })
    }

    /// The first entry.
    pub(crate) fn open(self: &Arc<Self>, core: &Arc<Core>, hold: &Arc<Hold>) -> Stake {
        let (count, doubt) = (1, false);
        let tenure = Arc::new(Tenure {
            hold: Arc::clone(hold),
            stakes: Mutex::new(1),
            steps: tokio::sync::Mutex::new(Steps { count, doubt }),
            _post: Arc::clone(self),
        });
        self.tenure.send_replace(Arc::downgrade(&tenure));
        let core = Arc::clone(core);
        let tenure = Some(tenure);
        Stake { core, tenure }
    }

    /// Takes away what the owner has lost, so that the store's rest of it bars nobody's way.
    pub(crate) fn clear(&self, core: &Core) {
        let Some(tenure) = self.current().filter(|tenure| !tenure.is_open()) else {
            return;
        };
        self.tenure.send_replace(Weak::new());
        if tenure.hold.loss().is_some() && !tenure.hold.is_detached() {
            core.debts.leave(&tenure.hold);
        }
    }
}

impl Tenure {
    fn stakes(&self) -> MutexGuard<'_, u64> {
        self.stakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_open(&self) -> bool {
        *self.stakes() > 0 && self.hold.is_usable()
    }

    /// One goes. Whether it was the last.
    fn step_out(&self) -> bool {
        let mut stakes = self.stakes();
        *stakes -= 1;
        *stakes == 0
    }

    /// Reads the count anew after a step of unknown outcome. False if the hold is gone.
    async fn look(&self, shared: &Shared, steps: &mut Steps, until: Moment) -> Outcome<bool> {
        if !steps.doubt {
            return Outcome::Done(true);
        }
        match self.hold.claim.count(&shared.store, until).await {
            Outcome::Done(0) => {
                self.hold.lose("the store no longer had it");
                Outcome::Done(false)
            }
            Outcome::Done(count) => {
                (steps.count, steps.doubt) = (count, false);
                Outcome::Done(true)
            }
            Outcome::Refused(error) => Outcome::Refused(error),
            Outcome::Unknown(error) => Outcome::Unknown(error),
        }
    }

    /// One step up, or an entry that the count has already. False if the hold is gone.
    async fn rise(&self, shared: &Shared, term: LeaseTerm, until: Moment) -> Outcome<bool> {
        let Some(mut steps) = shared.clock.limit(until, self.steps.lock()).await else {
            return Outcome::Refused(unanswered());
        };
        for _ in 0..TRIES {
            match self.look(shared, &mut steps, until).await {
                Outcome::Done(true) => {}
                other => return other,
            }
            let asked = shared.clock.now();
            self.hold.may_last(term.ttl());
            // Somebody who left may have left the count for this entry.
            let stays = steps.count >= *self.stakes();
            steps.doubt = true;
            let outcome = if stays {
                self.confirm(shared, term, until).await
            } else {
                let claim = &self.hold.claim;
                let reached = claim
                    .reach(&shared.store, steps.count + 1, term.ttl(), until)
                    .await;
                reached.map(|reached| matches!(reached, Acquired::Held(_)))
            };
            match outcome {
                Outcome::Done(true) => {
                    steps.count += u64::from(!stays);
                    steps.doubt = false;
                    self.hold.entered(asked, term);
                    shared.watchdog.look_again(&self.hold);
                    return Outcome::Done(self.hold.is_usable());
                }
                // Another count, or no hold.
                Outcome::Done(false) => {}
                Outcome::Refused(error) => {
                    steps.doubt = self.hold.claim.flight.unanswered().is_some();
                    return Outcome::Refused(error);
                }
                Outcome::Unknown(error) => return Outcome::Unknown(error),
            }
        }
        Outcome::Refused(unsteady())
    }

    /// Asks whether the hold is there, and raises its TTL. Unlike a step to 1 this makes none.
    async fn confirm(&self, shared: &Shared, term: LeaseTerm, until: Moment) -> Outcome<bool> {
        let claim = &self.hold.claim;
        let batch = Batch(vec![Renewal {
            name: claim.name.clone(),
            hold: claim.id.clone(),
            ttl: Some(term.ttl()),
        }]);
        let held = shared.store.run(&batch, &claim.flight, until).await;
        held.map(|held| held == [true])
    }

    /// Steps down to what the stakes need, if anybody is in. The last one frees the lock itself.
    async fn settle(&self, shared: &Shared, until: Moment) -> Outcome<()> {
        let Some(mut steps) = shared.clock.limit(until, self.steps.lock()).await else {
            return Outcome::Refused(unanswered());
        };
        let mut surprises = 0;
        while self.is_open() {
            match self.look(shared, &mut steps, until).await {
                Outcome::Done(true) => {}
                Outcome::Done(false) => break,
                Outcome::Refused(error) => return Outcome::Refused(error),
                Outcome::Unknown(error) => return Outcome::Unknown(error),
            }
            // Never to 0: that frees, and is not done by steps.
            if steps.count <= (*self.stakes()).max(1) {
                break;
            }
            let (asked, ttl) = (shared.clock.now(), self.hold.kept());
            steps.doubt = true;
            let claim = &self.hold.claim;
            match claim
                .leave(&shared.store, steps.count - 1, ttl, until)
                .await
            {
                Outcome::Done(Released::StillHeld) => {
                    (steps.count, steps.doubt) = (steps.count - 1, false);
                    self.hold.confirmed(asked, None);
                }
                Outcome::Done(Released::Gone | Released::Freed { .. }) => {
                    surprises += 1;
                    if surprises >= TRIES {
                        return Outcome::Refused(unsteady());
                    }
                }
                Outcome::Refused(error) => {
                    steps.doubt = claim.flight.unanswered().is_some();
                    return Outcome::Refused(error);
                }
                Outcome::Unknown(error) => return Outcome::Unknown(error),
            }
        }
        Outcome::Done(())
    }

    /// As [`Tenure::settle`], again and again until it is answered, or `until`.
    pub(crate) async fn pay(&self, shared: &Shared, until: Moment) -> Result<()> {
        let mut retry = super::release::Retry::default();
        loop {
            let error = match self.settle(shared, until).await {
                Outcome::Done(()) => return Ok(()),
                Outcome::Refused(error) if !error.is_retryable() => return Err(error),
                Outcome::Refused(error) | Outcome::Unknown(error) => error,
            };
            retry.pause(shared.clock, until, error).await?;
        }
    }

    /// A request over an old line may be run late: cut it, and look again.
    pub(crate) async fn exorcise(&self, shared: &Shared, until: Moment) -> Result<()> {
        let Some(line) = self.hold.claim.flight.unanswered() else {
            return Ok(());
        };
        shared.store.cut(line).await;
        if let Some(mut steps) = shared.clock.limit(until, self.steps.lock()).await {
            steps.doubt = true;
        }
        self.pay(shared, until).await
    }
}

impl Stake {
    pub(crate) fn hold(&self) -> Option<&Arc<Hold>> {
        self.tenure.as_ref().map(|tenure| &tenure.hold)
    }

    /// Enters. False if the hold is gone.
    pub(crate) async fn rise(&self, term: LeaseTerm, until: Moment) -> Outcome<bool> {
        match &self.tenure {
            Some(tenure) => tenure.rise(&self.core.shared, term, until).await,
            None => Outcome::Done(false),
        }
    }

    /// Leaves, and says whether the lock had been held all the while.
    ///
    /// Whatever is not settled here is owed by the reaper, also when the future is dropped.
    pub(crate) async fn leave(mut self) -> Result<()> {
        let core = Arc::clone(&self.core);
        let Some(tenure) = self.tenure.take() else {
            return Ok(());
        };
        let last = tenure.step_out();
        let hold = &tenure.hold;
        let lost = || {
            hold.loss()
                .map_or(Ok(()), |reason| Err(Error::Lost(reason)))
        };
        if hold.is_detached() {
            return lost();
        }
        if last {
            return core.release(Arc::clone(hold)).await;
        }
        let owed = core.debts.owe_step(&tenure);
        let paid = core
            .shared
            .life
            .while_open(tenure.pay(&core.shared, core.call_limit()));
        paid.await?;
        if hold.claim.flight.unanswered().is_none() {
            owed.settled();
        }
        lost()
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        let Some(tenure) = self.tenure.take() else {
            return;
        };
        let last = tenure.step_out();
        if tenure.hold.is_detached() {
            return;
        }
        if last {
            self.core.end(&tenure.hold);
            self.core.debts.leave(&tenure.hold);
        } else {
            self.core.debts.leave_step(&tenure);
        }
    }
}

fn unanswered() -> Error {
    Error::unavailable("an earlier step of this owner has no answer yet")
}

fn unsteady() -> Error {
    Error::protocol("somebody else changes the count of this hold")
}
