//! A hold that this client has: its lease as far as it is known, and the signal of its loss.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Claim;
use crate::model::lease::{LeaseState, Tracker};
use crate::model::{LeaseTerm, Moment, Ttl};
use crate::store::Clock;

/// One hold. It knows when it may be lost; it does not release itself.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    clock: Clock,
    inner: Mutex<Inner>,
    lost: watch::Sender<bool>,
}

#[derive(Debug)]
struct Inner {
    tracker: Tracker,
    phase: Phase,
    /// Not before then is the store asked again after a failure.
    retry: Option<Moment>,
}

/// What this client does with the hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It is watched, and its loss is news.
    Active,
    /// It is being given back: that it is gone is no loss.
    Ending,
    /// It was let go: nobody here gives it back.
    Detached,
}

impl Hold {
    pub(crate) fn granted(claim: Claim, clock: Clock, tracker: Tracker) -> Self {
        let inner = Inner {
            tracker,
            phase: Phase::Active,
            retry: None,
        };
        Self {
            claim,
            clock,
            inner: Mutex::new(inner),
            lost: watch::Sender::new(false),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner, Moment) -> T) -> T {
        let now = self.clock.now();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut inner, now);
        let lost = inner.tracker.lost(now).is_some();
        drop(inner);
        if lost {
            // Outside the mutex, so that no listener can stall a renewal.
            self.lost
                .send_if_modified(|told| !std::mem::replace(told, true));
        }
        result
    }

    pub(crate) fn state(&self) -> LeaseState {
        self.with(|inner, now| inner.tracker.state(now))
    }

    /// Why the hold was lost, if it was.
    pub(crate) fn loss(&self) -> Option<&'static str> {
        self.with(|inner, now| inner.tracker.lost(now))
    }

    /// How long the lease may still be relied upon.
    pub(crate) fn remaining(&self) -> Duration {
        self.with(|inner, now| match inner.tracker.state(now) {
            LeaseState::Lost => Duration::ZERO,
            _ => inner.tracker.deadline().since(now),
        })
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.with(|inner, _| inner.tracker.deadline())
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns when the hold is lost.
    pub(crate) async fn lost(&self) {
        let mut lost = self.lost.subscribe();
        loop {
            let deadline = self.deadline();
            if self.loss().is_some() {
                return;
            }
            // The watchdog tells; the timer is for when it cannot.
            let _ = self
                .clock
                .limit(deadline, lost.wait_for(|lost| *lost))
                .await;
        }
    }

    /// Returns when less than `margin` is left of the lease, or it is lost.
    pub(crate) async fn ends_within(&self, margin: Duration) {
        let mut lost = self.lost.subscribe();
        loop {
            let left = self.remaining();
            if left <= margin {
                return;
            }
            let near = self.clock.now().after(left - margin);
            if self
                .clock
                .limit(near, lost.wait_for(|lost| *lost))
                .await
                .is_some()
            {
                return;
            }
        }
    }

    /// The store said held; with a TTL, it also set that TTL.
    pub(crate) fn confirmed(&self, asked: Moment, ttl: Option<Ttl>) {
        self.with(|inner, now| {
            inner.retry = None;
            match ttl {
                Some(ttl) => inner.tracker.renewed(asked, ttl, now),
                None => inner.tracker.held(asked, now),
            }
        });
    }

    /// No definite answer; the store is to be asked again after `pause`.
    pub(crate) fn doubt(&self, pause: Duration) {
        self.with(|inner, now| {
            inner.tracker.doubt();
            inner.retry = Some(now.after(pause));
        });
    }

    /// The store may have forgotten; it is to be asked at once.
    pub(crate) fn distrust(&self) {
        self.doubt(Duration::ZERO);
    }

    /// The hold is gone. No news while it is being given back.
    pub(crate) fn lose(&self, reason: &'static str) {
        self.with(|inner, _| {
            if inner.phase == Phase::Active {
                inner.tracker.lose(reason);
            }
        });
    }

    /// From now on a missing hold is no loss.
    pub(crate) fn begin_end(&self) {
        self.with(|inner, _| inner.phase = Phase::Ending);
    }

    /// From now on nobody here gives the hold back.
    pub(crate) fn detach(&self) {
        self.with(|inner, _| inner.phase = Phase::Detached);
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.with(|inner, _| inner.phase == Phase::Detached)
    }

    pub(crate) fn is_active(&self) -> bool {
        self.with(|inner, _| inner.phase == Phase::Active)
    }

    /// The TTL that a renewal at this moment sets; none if the hold is only to be looked at.
    pub(crate) fn renewal(&self) -> Option<Ttl> {
        match self.claim.term {
            LeaseTerm::Fixed(_) => None,
            LeaseTerm::Renewed { ttl, .. } => self
                .with(|inner, now| inner.tracker.renews(now))
                .then_some(ttl),
        }
    }

    /// When the store is to be asked about the hold.
    pub(crate) fn due(&self) -> Moment {
        self.with(|inner, _| inner.retry.unwrap_or_else(|| inner.tracker.due()))
    }
}
