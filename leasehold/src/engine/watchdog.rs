//! The watchdog: one task per client that renews every hold in batches, and tells of losses.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::{Hold, Shared};
use crate::model::{HoldId, Moment};
use crate::op::renew::{Batch, Renewal};
use crate::store::{Flight, Outcome};

/// How many holds go in one command.
const BATCH: usize = 100;
/// Holds that would be due this soon go along with those that are.
const ALONG: Duration = Duration::from_secs(5);

/// The holds that are watched, by when something is to be done about them.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    schedule: Mutex<Schedule>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Schedule {
    due: BTreeMap<(Moment, HoldId), Arc<Hold>>,
    /// Every watched hold with its key in `due`; no key while a batch with it is out.
    watched: HashMap<HoldId, (Arc<Hold>, Option<Moment>)>,
}

impl Watchdog {
    /// Watches a hold until [`Watchdog::forget`] or its loss.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.lock().put(hold);
        self.changed.notify_one();
    }

    /// Stops watching. A batch that is out may still carry the hold, but changes nothing.
    pub(crate) fn forget(&self, hold: &Hold) {
        self.lock().remove(&hold.claim.id);
    }

    /// How many holds are watched.
    #[cfg(feature = "test-util")]
    pub(crate) fn len(&self) -> usize {
        self.lock().watched.len()
    }

    /// Every hold that is watched.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.lock()
            .watched
            .values()
            .map(|(hold, _)| Arc::clone(hold))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Schedule {
    fn put(&mut self, hold: &Arc<Hold>) {
        let id = &hold.claim.id;
        self.remove(id);
        let at = hold.due().min(hold.deadline());
        self.due.insert((at, id.clone()), Arc::clone(hold));
        self.watched
            .insert(id.clone(), (Arc::clone(hold), Some(at)));
    }

    fn remove(&mut self, id: &HoldId) {
        if let Some((_, Some(at))) = self.watched.remove(id) {
            self.due.remove(&(at, id.clone()));
        }
    }

    /// Puts a hold back after a batch, unless it was forgotten meanwhile.
    fn put_back(&mut self, hold: &Arc<Hold>) {
        if self.watched.contains_key(&hold.claim.id) {
            self.put(hold);
        }
    }

    fn next(&self) -> Moment {
        self.due.keys().next().map_or(Moment::NEVER, |(at, _)| *at)
    }

    /// Takes what is due at `now`, and what may as well go along.
    fn take(&mut self, now: Moment) -> Vec<Arc<Hold>> {
        let along = |hold: &Hold| ALONG.min(hold.claim.term.ttl().period() / 2);
        let upto = (now.after(ALONG), HoldId::found("\u{10FFFF}"));
        let ready = self
            .due
            .range(..=upto)
            .filter(|((at, _), hold)| *at <= now.after(along(hold)));
        let keys: Vec<_> = ready.map(|(key, _)| key.clone()).collect();
        if keys.first().is_none_or(|(at, _)| *at > now) {
            return vec![];
        }
        let taken = keys.into_iter().filter_map(|key| {
            let hold = self.due.remove(&key)?;
            self.watched.insert(key.1, (Arc::clone(&hold), None));
            Some(hold)
        });
        taken.collect()
    }
}

/// Starts the watchdog's task.
pub(crate) fn start(shared: &Arc<Shared>) {
    // Made here: a runtime may end before it has polled the task even once.
    tokio::spawn(watch(Ended(Arc::clone(shared))));
}

async fn watch(ended: Ended) {
    let shared = &ended.0;
    let mut resets = shared.hub.resets();
    let mut batches = JoinSet::new();
    loop {
        let next = shared.watchdog.lock().next();
        tokio::select! {
            _ = shared.life.ended() => return,
            () = shared.clock.sleep_until(next), if next < Moment::NEVER => {}
            () = shared.watchdog.changed.notified() => {}
            Some(_) = batches.join_next() => {}
            Ok(()) = resets.changed() => distrust_all(shared),
        }
        let due = shared.watchdog.lock().take(shared.clock.now());
        for batch in into_batches(shared, due) {
            let span = shared.observer.renewing(batch.len());
            batches.spawn(renew(Arc::clone(shared), batch, span.clone()).instrument(span));
        }
    }
}

/// Ends the client when its runtime drops this task.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.life.end("the runtime that made it has ended");
    }
}

fn distrust_all(shared: &Shared) {
    let mut schedule = shared.watchdog.lock();
    let watched: Vec<_> = schedule.watched.values().cloned().collect();
    for (hold, at) in watched {
        hold.distrust();
        // A batch that is out puts its holds back itself.
        if at.is_some() {
            schedule.put(&hold);
        }
    }
}

/// Groups holds by slot, and lets go of those that are over.
fn into_batches(shared: &Shared, due: Vec<Arc<Hold>>) -> Vec<Vec<Arc<Hold>>> {
    let mut slots: BTreeMap<u64, Vec<Arc<Hold>>> = BTreeMap::new();
    for hold in due {
        if hold.over().is_some() || hold.is_detached() {
            shared.watchdog.forget(&hold);
        } else {
            slots
                .entry(shared.store.slot(&hold.claim.name))
                .or_default()
                .push(hold);
        }
    }
    let chunks = slots
        .values()
        .flat_map(|holds| holds.chunks(BATCH).map(<[_]>::to_vec));
    chunks.collect()
}

/// Asks the store about one batch, and tells every hold what was said of it.
async fn renew(shared: Arc<Shared>, holds: Vec<Arc<Hold>>, span: Span) {
    shared
        .counts
        .renewal_batches
        .fetch_add(1, Ordering::Relaxed);
    let asked = shared.clock.now();
    let renewals: Vec<_> = holds
        .iter()
        .map(|hold| Renewal {
            name: hold.claim.name.clone(),
            hold: hold.claim.id.clone(),
            ttl: hold.renewal(),
        })
        .collect();
    // No longer than a third of the shortest TTL: a later batch is as good.
    let patience = holds
        .iter()
        .map(|hold| hold.claim.term.ttl().period())
        .min();
    let until = asked.after(patience.unwrap_or_default());
    let batch = Batch(renewals);
    let outcome = shared.store.run(&batch, &Flight::default(), until).await;
    let answered = matches!(&outcome, Outcome::Done(_));
    span.record("outcome", if answered { "answered" } else { "unknown" });
    match outcome {
        Outcome::Done(held) if held.len() == holds.len() => {
            for ((hold, held), renewal) in holds.iter().zip(held).zip(&batch.0) {
                if held {
                    let margin = hold.remaining();
                    if renewal.ttl.is_some() && !margin.is_zero() {
                        shared.observer.renewed(&hold.claim, margin);
                    }
                    hold.confirmed(asked, renewal.ttl);
                } else {
                    hold.lose("the store no longer has it");
                }
            }
        }
        Outcome::Done(_) => doubt(&shared, &holds, "a renewal's reply is of another length"),
        Outcome::Refused(error) | Outcome::Unknown(error) => {
            doubt(&shared, &holds, &error.to_string());
        }
    }
    let mut schedule = shared.watchdog.lock();
    for hold in &holds {
        if hold.over().is_some() {
            schedule.remove(&hold.claim.id);
        } else {
            schedule.put_back(hold);
        }
    }
    drop(schedule);
    shared.watchdog.changed.notify_one();
}

fn doubt(shared: &Shared, holds: &[Arc<Hold>], error: &str) {
    shared.observer.uncertain(holds.len(), error);
    for hold in holds {
        let pause = hold.claim.term.ttl().period() / 8;
        hold.doubt(pause.min(Duration::from_millis(500)));
    }
}
