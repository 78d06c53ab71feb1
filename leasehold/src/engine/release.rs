//! Giving a hold back, and whatever else is repeated until it is answered.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use super::{Core, Hold, Shared};
use crate::error::{Error, Result};
use crate::model::Moment;
use crate::op::Operation;
use crate::op::mutex::Released;
use crate::planted::{Fault, planted};
use crate::store::{Clock, Flight, Outcome};

/// The first pause after a failure; doubled up to [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two tries.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The pauses between the tries of one call.
#[derive(Debug)]
pub(crate) struct Retry(Duration);

impl Default for Retry {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Retry {
    /// Pauses, or gives up with the error if there is no time for another try.
    pub(crate) async fn pause(&mut self, clock: Clock, until: Moment, error: Error) -> Result<()> {
        let again = clock.now().after(self.0);
        if again >= until {
            return Err(error);
        }
        clock.sleep_until(again).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

impl Shared {
    /// Repeats an operation until it is answered, or `until`. One that must not run twice is
    /// repeated only while it certainly did not run.
    pub(crate) async fn repeat<O: Operation>(&self, op: &O, until: Moment) -> Result<O::Reply> {
        let flight = Flight::default();
        let mut retry = Retry::default();
        loop {
            let error = match self.store.run(op, &flight, until).await {
                Outcome::Done(reply) => return Ok(reply),
                Outcome::Refused(error) if !error.is_retryable() => return Err(error),
                Outcome::Unknown(error) if !O::REPEATABLE => return Err(error),
                Outcome::Refused(error) | Outcome::Unknown(error) => error,
            };
            retry.pause(self.clock, until, error).await?;
        }
    }
}

impl Core {
    /// Gives the hold back and says whether it had been held all the while.
    ///
    /// Whatever is not settled here is owed by the reaper, also when the future is dropped.
    pub(crate) async fn release(self: &Arc<Self>, hold: Arc<Hold>) -> Result<()> {
        let owed = self.debts.owe(&hold);
        self.end(&hold);
        // Whatever the store still has of a lost hold is the reaper's.
        if let Some(reason) = hold.loss() {
            return Err(Error::Lost(reason));
        }
        let until = self.call_limit();
        let span = self.shared.observer.releasing(&hold.claim);
        let giving = pin!(self.shared.give_back(&hold, until));
        let giving = giving.instrument(span.clone());
        let result = self.shared.life.while_open(giving).await;
        span.in_scope(|| self.shared.gave_back(&hold, &result, &span));
        if matches!(result, Ok(()) | Err(Error::Lost(_)))
            && hold.claim.flight.unanswered().is_none()
        {
            hold.claim.settle();
            owed.settled();
        }
        result
    }

    /// Stops watching: from now on a missing hold is no loss.
    pub(crate) fn end(&self, hold: &Hold) {
        hold.give_back();
        if !planted(Fault::RenewalOutlivesRelease) {
            self.shared.watchdog.forget(hold);
        }
    }
}

impl Shared {
    /// Tells how a release went. A hold that turned out to be gone is a loss that nobody saw.
    fn gave_back(&self, hold: &Hold, result: &Result<()>, span: &Span) {
        let outcome = match result {
            Ok(()) => "freed",
            Err(Error::Lost(reason)) => {
                self.observer.lost(&hold.claim, reason);
                "lost"
            }
            Err(_) => "unanswered",
        };
        self.observer.released(&hold.claim, span, "caller", outcome);
    }

    async fn give_back(&self, hold: &Hold, until: Moment) -> Result<()> {
        let mut retry = Retry::default();
        let mut repeated = false;
        loop {
            // Only what is certainly sent before the deadline excuses that nothing is found later.
            let deadline = hold.deadline();
            let in_time = self.clock.now() < deadline;
            let end = if in_time { until.min(deadline) } else { until };
            let error = match hold.claim.release(&self.store, end).await {
                Outcome::Done(Released::Freed { announced }) => {
                    if !announced {
                        tracing::warn!(lock = hold.claim.name.as_str(), "waiters were not told");
                    }
                    return Ok(());
                }
                // The first try may have freed it, and it was sent while the lease was valid.
                Outcome::Done(Released::Gone) if repeated => return Ok(()),
                Outcome::Done(Released::Gone | Released::StillHeld) => {
                    return Err(Error::Lost("the store no longer had it"));
                }
                Outcome::Refused(error) if !error.is_retryable() => return Err(error),
                Outcome::Refused(error) => error,
                Outcome::Unknown(error) => {
                    repeated |= in_time;
                    error
                }
            };
            retry.pause(self.clock, until, error).await?;
        }
    }
}
