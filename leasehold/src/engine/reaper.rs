//! The reaper: owns every release that nobody awaits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::release::{FIRST_PAUSE, LONGEST_PAUSE};
use super::{Claim, Hold, Shared, Tenure};
use crate::model::Moment;
use crate::store::Outcome;

/// Where releases are left. Sending needs no runtime, never blocks and never fails.
#[derive(Clone, Debug)]
pub(crate) struct Debts {
    queue: mpsc::UnboundedSender<Debt>,
    owed: Arc<watch::Sender<Tally>>,
}

/// How many releases are owed, and how the others ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) owed: usize,
    /// Requests that somebody awaits: if dropped, each becomes a debt.
    pub(crate) asking: usize,
    pub(crate) released: usize,
    pub(crate) abandoned: usize,
}

/// What may still be at the store.
#[derive(Debug)]
enum Debt {
    Claim(Claim),
    Hold(Arc<Hold>),
    /// Steps down to what is still needed.
    Step(Arc<Tenure>),
}

/// A release that the reaper takes over when this is dropped before it is settled.
#[derive(Debug)]
pub(crate) struct Owed {
    debts: Debts,
    debt: Option<Debt>,
    /// Until then, so that a close waits for the answer. Dropped after the hold was left.
    _asking: Asking,
}

/// A request that is out and becomes a debt if it is dropped; over when this is dropped.
#[derive(Debug)]
pub(crate) struct Asking(Arc<watch::Sender<Tally>>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.send_modify(|tally| tally.asking -= 1);
    }
}

impl Debts {
    /// Lets [`Debts::paid`] wait for a request that is about to be sent.
    pub(crate) fn asking(&self) -> Asking {
        self.owed.send_modify(|tally| tally.asking += 1);
        Asking(Arc::clone(&self.owed))
    }

    /// Leaves a hold that nobody will release.
    pub(crate) fn leave(&self, hold: &Arc<Hold>) {
        self.send(Debt::Hold(Arc::clone(hold)));
    }

    /// Leaves a claim that may or may not have become a hold.
    pub(crate) fn leave_claim(&self, claim: Claim) {
        self.send(Debt::Claim(claim));
    }

    /// Leaves the hold unless the caller settles it first.
    pub(crate) fn owe(&self, hold: &Arc<Hold>) -> Owed {
        self.owed(Debt::Hold(Arc::clone(hold)))
    }

    /// Leaves a step of a hold that others have entered, too.
    pub(crate) fn leave_step(&self, tenure: &Arc<Tenure>) {
        self.send(Debt::Step(Arc::clone(tenure)));
    }

    /// Leaves the step unless the caller settles it first.
    pub(crate) fn owe_step(&self, tenure: &Arc<Tenure>) -> Owed {
        self.owed(Debt::Step(Arc::clone(tenure)))
    }

    fn owed(&self, debt: Debt) -> Owed {
        Owed {
            debts: self.clone(),
            debt: Some(debt),
            _asking: self.asking(),
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        *self.owed.borrow()
    }

    /// Returns when nothing is owed, nor can come to be.
    pub(crate) async fn paid(&self) {
        let _ = self
            .owed
            .subscribe()
            .wait_for(|tally| tally.owed == 0 && tally.asking == 0)
            .await;
    }

    fn send(&self, debt: Debt) {
        self.owed.send_modify(|tally| tally.owed += 1);
        if self.queue.send(debt).is_err() {
            // The runtime has ended: the TTL is what is left.
            self.owed.send_modify(|tally| {
                tally.owed -= 1;
                tally.abandoned += 1;
            });
        }
    }
}

impl Owed {
    pub(crate) fn settled(mut self) {
        self.debt = None;
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(debt) = self.debt.take() {
            self.debts.send(debt);
        }
    }
}

impl Debt {
    fn claim(&self) -> &Claim {
        match self {
            Self::Claim(claim) => claim,
            Self::Hold(hold) => &hold.claim,
            Self::Step(tenure) => &tenure.hold.claim,
        }
    }

    /// How long the store may keep it from now on.
    fn ttl(&self) -> Duration {
        match self {
            Self::Claim(claim) => claim.term.ttl(),
            Self::Hold(hold) => hold.longest(),
            Self::Step(tenure) => tenure.hold.longest(),
        }
        .as_duration()
    }
}

/// A debt that its runtime did not let anybody pay: on this machine, too, the TTL is what is left,
/// whoever still has a lease of the hold.
impl Drop for Debt {
    fn drop(&mut self) {
        match self {
            Self::Claim(_) | Self::Hold(_) => self.claim().settle(),
            // Others are still in.
            Self::Step(_) => {}
        }
    }
}

/// The task that pays the debts.
pub(crate) struct Reaper;

impl Reaper {
    /// Starts the task. It ends when every [`Debts`] is dropped and nothing is owed.
    pub(crate) fn start(shared: Arc<Shared>) -> Debts {
        let (queue, mut debts) = mpsc::unbounded_channel::<Debt>();
        let owed = Arc::new(watch::Sender::new(Tally::default()));
        let tally = Arc::clone(&owed);
        tokio::spawn(async move {
            let mut payments = JoinSet::new();
            loop {
                tokio::select! {
                    debt = debts.recv() => match debt {
                        Some(debt) => {
                            let span = match &debt {
                                // Others are still in.
                                Debt::Step(_) => Span::none(),
                                _ => shared.observer.releasing(debt.claim()),
                            };
                            let (shared, tally) = (Arc::clone(&shared), Arc::clone(&tally));
                            let payment = pay(shared, debt, tally, span.clone());
                            payments.spawn(payment.instrument(span));
                        }
                        None => break,
                    },
                    Some(_) = payments.join_next() => {}
                }
            }
            while payments.join_next().await.is_some() {}
        });
        Debts { queue, owed }
    }
}

async fn pay(shared: Arc<Shared>, debt: Debt, tally: Arc<watch::Sender<Tally>>, span: Span) {
    let paid = match &debt {
        Debt::Step(tenure) => step(&shared, tenure, debt.ttl()).await,
        Debt::Claim(_) | Debt::Hold(_) => free(&shared, debt.claim(), debt.ttl()).await,
    };
    if !matches!(debt, Debt::Step(_)) {
        let outcome = if paid { "freed" } else { "unanswered" };
        shared
            .observer
            .released(debt.claim(), &span, "reaper", outcome);
    }
    tally.send_modify(|tally| {
        tally.owed -= 1;
        if paid {
            tally.released += 1;
        } else {
            tally.abandoned += 1;
        }
    });
}

/// Brings a count that is too high down to what is needed.
async fn step(shared: &Shared, tenure: &Tenure, ttl: Duration) -> bool {
    let end = shared.clock.now().after(ttl);
    let paid = match tenure.pay(shared, end).await {
        Ok(()) => tenure.exorcise(shared, end).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &paid {
        let lock = tenure.hold.claim.name.as_str();
        tracing::warn!(lock, %error, "a hold count stays too high until its last release");
    }
    paid.is_ok()
}

/// Frees whatever there may be of a claim.
async fn free(shared: &Shared, claim: &Claim, ttl: Duration) -> bool {
    let mut paid = release(shared, claim, ttl).await;
    if let Some(line) = claim.flight.unanswered() {
        paid |= exorcise(shared, claim, ttl, line).await;
    }
    claim.settle();
    paid
}

/// Releases, again and again while the store is away, as long as the TTL may keep the hold.
async fn release(shared: &Shared, claim: &Claim, ttl: Duration) -> bool {
    let end = shared.clock.now().after(ttl);
    let mut pause = FIRST_PAUSE;
    loop {
        match claim.release(&shared.store, end).await {
            Outcome::Done(_) => return true,
            Outcome::Refused(error) if !error.is_retryable() => {
                tracing::warn!(lock = claim.name.as_str(), %error, "a release was refused");
                return false;
            }
            Outcome::Refused(_) | Outcome::Unknown(_) => {}
        }
        let again = shared.clock.now().after(pause);
        if again >= end {
            return false;
        }
        shared.clock.sleep_until(again).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A request over an old line may be run late: cut the line, and release again behind it. Whether
/// the last release was answered.
async fn exorcise(shared: &Shared, claim: &Claim, ttl: Duration, line: u64) -> bool {
    shared.store.cut(line).await;
    let begun = shared.clock.now();
    let mut answered = false;
    let second = Duration::from_secs(1).min(ttl / 3);
    for moment in [
        begun,
        begun.after(second),
        begun.after((second * 3).min(ttl / 2)),
    ] {
        shared.clock.sleep_until(moment).await;
        let until: Moment = shared.clock.now().after(shared.limits.call);
        let outcome = claim.release(&shared.store, until).await;
        answered = matches!(outcome, Outcome::Done(_));
    }
    answered
}
