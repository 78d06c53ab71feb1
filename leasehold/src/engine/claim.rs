//! A claim: the identity of one acquisition, from before its first byte is sent.

use crate::error::Result;
use crate::model::{HoldId, LeaseTerm, Moment, Name};
use crate::op::mutex::{Acquire, Acquired, Release, Released};
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

    /// Asks for the lock once.
    pub(crate) async fn acquire(&self, store: &Store, until: Moment) -> Outcome<Acquired> {
        match self.kind {
            Kind::Mutex => {
                let (name, hold) = (self.name.clone(), self.id.clone());
                let op = Acquire {
                    name,
                    hold,
                    count: 1,
                    ttl: self.term.ttl(),
                };
                store.run(&op, &self.flight, until).await
            }
        }
    }

    /// Gives the lock back once. Touches nothing of another hold.
    pub(crate) async fn release(&self, store: &Store, until: Moment) -> Outcome<Released> {
        match self.kind {
            Kind::Mutex => {
                let (name, hold) = (self.name.clone(), self.id.clone());
                let op = Release {
                    name,
                    hold,
                    leave: 0,
                    ttl: self.term.ttl(),
                };
                store.run(&op, &self.flight, until).await
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
