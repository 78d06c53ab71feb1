//! A hold that this client has: its lease as far as it is known, and the signal of its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Claim;
use super::observe::{Holding, Observer};
use crate::model::lease::{End, LeaseState, Tracker};
use crate::model::{LeaseTerm, Moment, Token, Ttl};
use crate::store::Clock;

/// One hold. It knows when it may be lost; it does not release itself.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    /// Its fencing token, if it was asked for.
    pub(crate) token: Option<Token>,
    clock: Clock,
    inner: Mutex<Inner>,
    ended: watch::Sender<bool>,
    observer: Arc<Observer>,
}

#[derive(Debug)]
struct Inner {
    tracker: Tracker,
    /// It was let go: nobody here gives it back.
    detached: bool,
    /// Not before then is the store asked again after a failure.
    retry: Option<Moment>,
    /// The longest TTL that the store was asked for.
    longest: Ttl,
    /// While the hold counts as one of the client's.
    holding: Option<Holding>,
}

impl Hold {
    pub(crate) fn granted(
        claim: Claim,
        clock: Clock,
        tracker: Tracker,
        token: Option<Token>,
        observer: &Arc<Observer>,
    ) -> Self {
        let inner = Mutex::new(Inner {
            tracker,
            detached: false,
            retry: None,
            longest: claim.term.ttl(),
            holding: Some(observer.holding()),
        });
        Self {
            claim,
            token,
            clock,
            inner,
            ended: watch::Sender::new(false),
            observer: Arc::clone(observer),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner, Moment) -> T) -> T {
        let now = self.clock.now();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut inner, now);
        let ended = inner.tracker.ended(now);
        let over = inner.holding.take_if(|_| ended.is_some());
        drop(inner);
        if let (Some(_), Some(End::Lost(reason))) = (over, ended) {
            self.observer.lost(&self.claim, reason);
        }
        if ended.is_some() {
            // Outside the mutex, so that no listener can stall a renewal.
            self.ended
                .send_if_modified(|told| !std::mem::replace(told, true));
        }
        result
    }

    pub(crate) fn state(&self) -> LeaseState {
        self.with(|inner, now| inner.tracker.state(now))
    }

    /// Why the hold was lost, if it was.
    pub(crate) fn loss(&self) -> Option<&'static str> {
        match self.with(|inner, now| inner.tracker.ended(now)) {
            Some(End::Lost(reason)) => Some(reason),
            Some(End::Released) | None => None,
        }
    }

    /// Why nothing is held any more, if that is so.
    pub(crate) fn over(&self) -> Option<&'static str> {
        self.with(|inner, now| inner.tracker.ended(now))
            .map(|end| match end {
                End::Lost(reason) => reason,
                End::Released => "it was given back",
            })
    }

    /// How long the lease may still be relied upon.
    pub(crate) fn remaining(&self) -> Duration {
        self.with(|inner, now| match inner.tracker.ended(now) {
            Some(_) => Duration::ZERO,
            None => inner.tracker.deadline().since(now),
        })
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.with(|inner, _| inner.tracker.deadline())
    }

    /// Returns when the hold is lost. Giving it back is no loss.
    pub(crate) async fn lost(&self) {
        self.wait(|| self.loss().is_some(), Duration::ZERO).await;
    }

    /// Returns when nothing is held any more.
    pub(crate) async fn ended(&self) {
        self.wait(|| self.over().is_some(), Duration::ZERO).await;
    }

    /// Returns when at most `margin` is left of the lease, or nothing is held any more.
    pub(crate) async fn ends_within(&self, margin: Duration) {
        self.wait(|| self.remaining() <= margin, margin).await;
    }

    /// Returns when `done` says so; it is asked at the end, and `margin` before the deadline.
    async fn wait(&self, done: impl Fn() -> bool, margin: Duration) {
        let mut ended = self.ended.subscribe();
        loop {
            ended.mark_unchanged();
            if done() {
                return;
            }
            // The watchdog tells of the end; the timer is for when it cannot.
            let look = match self.over() {
                Some(_) => Moment::NEVER,
                None => self
                    .clock
                    .now()
                    .after(self.remaining().saturating_sub(margin)),
            };
            let _ = self.clock.limit(look, ended.changed()).await;
        }
    }

    /// The store said held; with a TTL, it also set that TTL.
    pub(crate) fn confirmed(&self, asked: Moment, ttl: Option<Ttl>) {
        self.with(|inner, now| {
            match ttl {
                Some(ttl) => inner.tracker.renewed(asked, ttl, now),
                None => inner.tracker.held(asked, now),
            }
            if !inner.tracker.is_doubted() {
                inner.retry = None;
            }
        });
    }

    /// No definite answer; the store is to be asked again after `pause`.
    pub(crate) fn doubt(&self, pause: Duration) {
        self.with(|inner, now| {
            inner.tracker.doubt(now);
            inner.retry = Some(now.after(pause));
        });
    }

    /// The store may have forgotten; it is to be asked at once.
    pub(crate) fn distrust(&self) {
        self.doubt(Duration::ZERO);
    }

    /// The hold is gone. That is no news once it was given back.
    pub(crate) fn lose(&self, reason: &'static str) {
        self.with(|inner, now| inner.tracker.end(End::Lost(reason), now));
    }

    /// The hold is being given back: that it is gone is no loss from now on.
    pub(crate) fn give_back(&self) {
        self.with(|inner, now| {
            if !inner.detached {
                inner.tracker.end(End::Released, now);
            }
        });
    }

    /// From now on nobody here gives the hold back.
    pub(crate) fn detach(&self) {
        self.with(|inner, _| {
            inner.detached = true;
            inner.holding = None;
        });
    }

    /// Whether it is held by this client as far as is known, so that it can be entered.
    pub(crate) fn is_usable(&self) -> bool {
        self.with(|inner, now| inner.tracker.ended(now).is_none() && !inner.detached)
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.with(|inner, _| inner.detached)
    }

    /// The store is about to be asked for `ttl`, and may keep the hold so long.
    pub(crate) fn may_last(&self, ttl: Ttl) {
        self.with(|inner, _| inner.longest = inner.longest.max(ttl));
    }

    /// The longest that the store may keep the hold.
    pub(crate) fn longest(&self) -> Ttl {
        self.with(|inner, _| inner.longest)
    }

    /// When the store forgets the hold if nobody renews it or gives it back, as far as is known.
    pub(crate) fn end(&self) -> Moment {
        self.deadline().after(self.longest().margin())
    }

    /// The TTL that a renewal at this moment sets; none if the hold is only to be looked at.
    pub(crate) fn renewal(&self) -> Option<Ttl> {
        self.with(|inner, now| match inner.tracker.term() {
            LeaseTerm::Fixed(_) => None,
            LeaseTerm::Renewed { ttl, .. } => inner.tracker.renews(now).then_some(ttl),
        })
    }

    /// The term of the lease: that of the claim, joined with those of who entered again.
    pub(crate) fn term(&self) -> LeaseTerm {
        self.with(|inner, _| inner.tracker.term())
    }

    /// The store said held to somebody who entered again under `term`.
    pub(crate) fn entered(&self, asked: Moment, term: LeaseTerm) {
        self.with(|inner, now| {
            inner.tracker.entered(term, asked, now);
            if !inner.tracker.is_doubted() {
                inner.retry = None;
            }
        });
    }

    /// The TTL that leaves the lease as it is when one of several leaves.
    pub(crate) fn kept(&self) -> Ttl {
        Ttl::left(self.remaining())
    }

    /// When the store is to be asked about the hold.
    pub(crate) fn due(&self) -> Moment {
        self.with(|inner, _| inner.retry.unwrap_or_else(|| inner.tracker.due()))
    }
}
