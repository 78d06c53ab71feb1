//! A claim: the identity of one acquisition, from before its first byte is sent.

use super::{Request, Shared};
use crate::error::Result;
use crate::model::{HoldId, LeaseTerm, Moment, Name, Ttl, Wire};
use crate::op::mutex::{self, Acquired, Released};
use crate::op::plain;
use crate::op::renew::{self, Renewal};
use crate::store::{Binding, Flight, Outcome, Store};

/// Which kind of lock, and which side of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    Mutex,
    /// A mutex in the format of others.
    Plain,
}

impl Kind {
    pub(crate) fn of_mutex(wire: Wire) -> Self {
        match wire {
            Wire::Redisson => Self::Mutex,
            Wire::Plain => Self::Plain,
        }
    }

    /// Whether every holder announces its release; if not, waiters ask again and again.
    pub(crate) fn announces(self) -> bool {
        match self {
            Self::Mutex => true,
            Self::Plain => false,
        }
    }

    /// Where a release of this kind of lock is announced.
    pub(crate) fn channel(self, name: &Name) -> String {
        match self {
            Self::Mutex => name.mutex_channel(),
            Self::Plain => name.plain_channel(),
        }
    }

    /// Renews holds of this kind in one slot, in one command.
    pub(crate) async fn renew(
        self,
        store: &Store,
        renewals: Vec<Renewal>,
        until: Moment,
    ) -> Outcome<Vec<bool>> {
        let flight = Flight::default();
        match self {
            Self::Mutex => store.run(&renew::Batch(renewals), &flight, until).await,
            Self::Plain => store.run(&plain::Batch(renewals), &flight, until).await,
        }
    }
}

impl Shared {
    /// Renews one hold, and repeats that while no answer comes. Whether it is held.
    pub(crate) async fn renew(&self, kind: Kind, one: Renewal, until: Moment) -> Result<bool> {
        let held = match kind {
            Kind::Mutex => self.repeat(&renew::Batch(vec![one]), until).await?,
            Kind::Plain => self.repeat(&plain::Batch(vec![one]), until).await?,
        };
        Ok(held == [true])
    }
}

/// What is asked for under one hold id, and what of it is still unanswered.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    /// Whether its hold is to have a fencing token.
    pub(crate) fenced: bool,
    pub(crate) name: Name,
    pub(crate) id: HoldId,
    pub(crate) term: LeaseTerm,
    pub(crate) flight: Flight,
    pub(crate) binding: Option<Binding>,
}

impl Claim {
    /// Makes the identity known to this machine, where the store ties holds to processes.
    pub(crate) fn arm(store: &Store, request: &Request, id: HoldId) -> Result<Self> {
        let binding = store.bind(&id, request.term)?;
        Ok(Self {
            kind: request.kind,
            fenced: request.fenced,
            name: request.name.clone(),
            id,
            term: request.term,
            flight: Flight::default(),
            binding,
        })
    }

    /// The claim to a hold that was made elsewhere.
    pub(crate) fn adopted(kind: Kind, name: &Name, id: HoldId, term: LeaseTerm) -> Self {
        Self {
            kind,
            fenced: false,
            name: name.clone(),
            id,
            term,
            flight: Flight::default(),
            binding: None,
        }
    }

    /// Asks for the lock once.
    pub(crate) async fn acquire(&self, store: &Store, until: Moment) -> Outcome<Acquired> {
        self.reach(store, 1, self.term.ttl(), until).await
    }

    /// Asks once for a hold count, which is the one of now or one more.
    pub(crate) async fn reach(
        &self,
        store: &Store,
        count: u64,
        ttl: Ttl,
        until: Moment,
    ) -> Outcome<Acquired> {
        let (name, hold) = (self.name.clone(), self.id.clone());
        let token_key = self.fenced.then(|| self.name.token_key());
        match self.kind {
            Kind::Mutex => {
                let op = mutex::Acquire {
                    name,
                    hold,
                    count,
                    ttl,
                    token_key,
                };
                store.run(&op, &self.flight, until).await
            }
            Kind::Plain => {
                let op = plain::Acquire {
                    name,
                    hold,
                    ttl,
                    token_key,
                };
                store.run(&op, &self.flight, until).await
            }
        }
    }

    /// Gives the lock back once. Touches nothing of another hold.
    pub(crate) async fn release(&self, store: &Store, until: Moment) -> Outcome<Released> {
        self.leave(store, 0, self.term.ttl(), until).await
    }

    /// Leaves a hold count once, which is the one of now or one less; or 0, whatever it is.
    pub(crate) async fn leave(
        &self,
        store: &Store,
        leave: u64,
        ttl: Ttl,
        until: Moment,
    ) -> Outcome<Released> {
        let (name, hold) = (self.name.clone(), self.id.clone());
        match self.kind {
            Kind::Mutex => {
                let op = mutex::Release {
                    name,
                    hold,
                    leave,
                    ttl,
                };
                store.run(&op, &self.flight, until).await
            }
            Kind::Plain => {
                let op = plain::Release { name, hold };
                store.run(&op, &self.flight, until).await
            }
        }
    }

    /// Looks once at the count that the store has; 0 without the hold.
    pub(crate) async fn count(&self, store: &Store, until: Moment) -> Outcome<u64> {
        match self.kind {
            Kind::Mutex => {
                let name = self.name.clone();
                let op = mutex::Inspect { name };
                let seen = store.run(&op, &self.flight, until).await;
                seen.map(|seen| seen.count_of(&self.id))
            }
            Kind::Plain => {
                let op = plain::Inspect {
                    name: self.name.clone(),
                };
                let seen = store.run(&op, &self.flight, until).await;
                seen.map(|seen| u64::from(seen.is_held_by(&self.id)))
            }
        }
    }

    /// Nothing of this claim is left at the store, nor will be.
    pub(crate) fn settle(&self) {
        if let Some(binding) = &self.binding {
            binding.remove();
        }
    }
}
