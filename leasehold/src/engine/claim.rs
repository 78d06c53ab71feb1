//! A claim: the identity of one acquisition, from before its first byte is sent.

use crate::error::Result;
use crate::model::{HoldId, LeaseTerm, Moment, Name, Ttl};
use crate::op::mutex::{Acquire, Acquired, Inspect, Release, Released};
use crate::store::{Binding, Flight, Outcome, Store};

/// Which kind of lock, and which side of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Mutex,
}

impl Kind {
    /// Where a release of this kind of lock is announced.
    pub(crate) fn channel(self, name: &Name) -> String {
        match self {
            Self::Mutex => name.mutex_channel(),
        }
    }
}

/// What is asked for under one hold id, and what of it is still unanswered.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    pub(crate) name: Name,
    pub(crate) id: HoldId,
    pub(crate) term: LeaseTerm,
    pub(crate) flight: Flight,
    pub(crate) binding: Option<Binding>,
}

impl Claim {
    /// Makes the identity known to this machine, where the store ties holds to processes.
    pub(crate) fn arm(
        store: &Store,
        kind: Kind,
        name: &Name,
        id: HoldId,
        term: LeaseTerm,
    ) -> Result<Self> {
        let binding = store.bind(&id, term)?;
        Ok(Self {
            kind,
            name: name.clone(),
            id,
            term,
            flight: Flight::default(),
            binding,
        })
    }

    /// The claim to a hold that was made elsewhere.
    pub(crate) fn adopted(kind: Kind, name: &Name, id: HoldId, term: LeaseTerm) -> Self {
        Self {
            kind,
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
        match self.kind {
            Kind::Mutex => {
                let (name, hold) = (self.name.clone(), self.id.clone());
                let op = Acquire {
                    name,
                    hold,
                    count,
                    ttl,
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
        match self.kind {
            Kind::Mutex => {
                let (name, hold) = (self.name.clone(), self.id.clone());
                let op = Release {
                    name,
                    hold,
                    leave,
                    ttl,
                };
                store.run(&op, &self.flight, until).await
            }
        }
    }

    /// Looks once at the count that the store has; 0 without the hold.
    pub(crate) async fn count(&self, store: &Store, until: Moment) -> Outcome<u64> {
        match self.kind {
            Kind::Mutex => {
                let name = self.name.clone();
                match store.run(&Inspect { name }, &self.flight, until).await {
                    Outcome::Done(seen) => Outcome::Done(seen.count_of(&self.id)),
                    Outcome::Refused(error) => Outcome::Refused(error),
                    Outcome::Unknown(error) => Outcome::Unknown(error),
                }
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
