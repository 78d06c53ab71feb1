//! What is told of locks and holds. The names are part of the interface: the manual's `observing`
//! lists them, and a test compares.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug_span};

use super::Claim;
use super::meters::Meters;
use crate::error::{Error, Result};
use crate::model::lease::{CLIENT_CLOSED, RAN_OUT};
use crate::model::{HoldId, Moment, Name};
use crate::store::Clock;
use crate::store::observe::TARGET;

/// Tells of one client's locks and holds.
#[derive(Debug)]
pub(crate) struct Observer {
    store: &'static str,
    clock: Clock,
    meters: Meters,
}

/// How a call that takes a lock ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    Held,
    Busy,
    Failed,
    Cancelled,
}

impl Ended {
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 4] = [Self::Held, Self::Busy, Self::Failed, Self::Cancelled];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Busy => "busy",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a hold was lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// The lease ran out.
    Expired,
    /// The store no longer had it.
    Gone,
    /// The client was closed.
    Closed,
}

impl Loss {
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 3] = [Self::Expired, Self::Gone, Self::Closed];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::Closed => "closed",
        }
    }

    fn of(reason: &str) -> Self {
        match reason {
            RAN_OUT => Self::Expired,
            CLIENT_CLOSED => Self::Closed,
            _ => Self::Gone,
        }
    }
}

/// Why a waiter was woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    Message,
    Gap,
    Timer,
    /// Holders of this kind may announce nothing, so waiters look by themselves.
    Look,
}

impl Cause {
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 4] = [Self::Message, Self::Gap, Self::Timer, Self::Look];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Gap => "gap",
            Self::Timer => "timer",
            Self::Look => "look",
        }
    }
}

impl Observer {
    pub(crate) fn new(store: &'static str, clock: Clock) -> Arc<Self> {
        let meters = Meters::new(store);
        Arc::new(Self {
            store,
            clock,
            meters,
        })
    }

    /// A call that takes a lock begins. Tells how it ended; also when it is dropped.
    pub(crate) fn acquiring<'a>(&'a self, name: &'a Name) -> Acquiring<'a> {
        let span = debug_span!(
            target: TARGET,
            "acquire",
            lock = name.as_str(),
            store = self.store,
            hold = Empty,
            waited_ms = Empty,
            outcome = Empty,
        );
        Acquiring {
            observer: self,
            name,
            begun: self.clock.now(),
            span,
            ended: Ended::Cancelled,
        }
    }

    /// Runs a wait for a busy lock. It is one only if it cannot end at once.
    pub(crate) async fn waiting<T>(
        &self,
        name: &Name,
        mut wait: impl Future<Output = T> + Unpin,
    ) -> T {
        let mut waiter = None;
        poll_fn(|context| {
            let inside = waiter
                .as_ref()
                .map(|waiter: &Waiter<'_>| waiter.span.enter());
            let polled = Pin::new(&mut wait).poll(context);
            drop(inside);
            if polled.is_pending() && waiter.is_none() {
                waiter = Some(self.waiter(name));
            }
            polled
        })
        .await
    }

    fn waiter(&self, name: &Name) -> Waiter<'_> {
        self.meters.waiters(1.0);
        let (lock, store) = (name.as_str(), self.store);
        Waiter {
            observer: self,
            span: debug_span!(target: TARGET, "wait", lock, store),
        }
    }

    pub(crate) fn woken(&self, name: &Name, cause: Cause) {
        self.meters.woken(cause);
        let (lock, cause) = (name.as_str(), cause.word());
        tracing::debug!(name: "woken", target: TARGET, lock, cause, store = self.store, "woken");
    }

    /// A hold begins; it is over when what this returns is dropped.
    pub(crate) fn holding(self: &Arc<Self>) -> Holding {
        self.meters.holds(1.0);
        Holding(Arc::clone(self))
    }

    /// The span of one batch of renewals.
    pub(crate) fn renewing(&self, holds: usize) -> Span {
        let store = self.store;
        debug_span!(target: TARGET, "renew", holds, store, outcome = Empty)
    }

    /// The store confirmed a renewal when `margin` was left of the lease.
    pub(crate) fn renewed(&self, claim: &Claim, margin: Duration) {
        self.meters.renewed(margin);
        tracing::trace!(
            name: "renewed",
            target: TARGET,
            lock = claim.name.as_str(),
            hold = claim.id.as_str(),
            store = self.store,
            margin_ms = millis(margin),
            "renewed"
        );
    }

    /// Renewals got no definite answer.
    pub(crate) fn uncertain(&self, holds: usize, error: &str) {
        let store = self.store;
        tracing::warn!(
            name: "uncertain",
            target: TARGET,
            holds,
            error,
            store,
            "renewal got no definite answer"
        );
    }

    /// A hold is no longer provably held.
    pub(crate) fn lost(&self, claim: &Claim, reason: &'static str) {
        let loss = Loss::of(reason);
        self.meters.lost(loss);
        tracing::warn!(
            name: "lost",
            target: TARGET,
            lock = claim.name.as_str(),
            hold = claim.id.as_str(),
            store = self.store,
            reason = loss.word(),
            "the hold was lost: {reason}"
        );
    }

    /// The span of a release, whoever sends it.
    pub(crate) fn releasing(&self, claim: &Claim) -> Span {
        debug_span!(
            target: TARGET,
            "release",
            lock = claim.name.as_str(),
            hold = claim.id.as_str(),
            store = self.store,
            outcome = Empty,
        )
    }

    /// A hold was given back, as far as that goes.
    pub(crate) fn released(
        &self,
        claim: &Claim,
        span: &Span,
        by: &'static str,
        outcome: &'static str,
    ) {
        span.record("outcome", outcome);
        tracing::debug!(
            name: "released",
            target: TARGET,
            lock = claim.name.as_str(),
            hold = claim.id.as_str(),
            store = self.store,
            by,
            outcome,
            "released"
        );
    }
}

/// A call that takes a lock, while it is under way.
pub(crate) struct Acquiring<'a> {
    observer: &'a Observer,
    name: &'a Name,
    begun: Moment,
    span: Span,
    ended: Ended,
}

impl Acquiring<'_> {
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(crate) fn ended(&mut self, result: Result<Option<&HoldId>, &Error>) {
        let hold = match result {
            Ok(Some(hold)) => hold,
            Ok(None) => {
                self.ended = Ended::Busy;
                return;
            }
            Err(_) => {
                self.ended = Ended::Failed;
                return;
            }
        };
        self.ended = Ended::Held;
        self.span.record("hold", hold.as_str());
        let _inside = self.span.enter();
        tracing::debug!(
            name: "acquired",
            target: TARGET,
            lock = self.name.as_str(),
            hold = hold.as_str(),
            store = self.observer.store,
            waited_ms = millis(self.waited()),
            "acquired"
        );
    }

    fn waited(&self) -> Duration {
        self.observer.clock.now().since(self.begun)
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        let waited = self.waited();
        self.observer.meters.waited(self.ended, waited);
        self.span.record("waited_ms", millis(waited));
        self.span.record("outcome", self.ended.word());
    }
}

/// A call that waits for a busy lock.
struct Waiter<'a> {
    observer: &'a Observer,
    span: Span,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.observer.meters.waiters(-1.0);
    }
}

/// A hold that is neither lost nor given back nor let go.
#[derive(Debug)]
pub(crate) struct Holding(Arc<Observer>);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.meters.holds(-1.0);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
