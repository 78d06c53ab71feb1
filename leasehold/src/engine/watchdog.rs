//! The watchdog: one task per client that renews every hold in batches, and tells of losses.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::{Hold, Kind, Shared, presence};
use crate::model::{Moment, Ttl};
use crate::op::renew::Renewal;
use crate::store::Outcome;

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
    due: BTreeMap<(Moment, Key), Arc<Hold>>,
    /// Every watched hold with its key in `due`; no key while a batch with it is out.
    watched: HashMap<Key, (Arc<Hold>, Option<Moment>)>,
    /// The longest lease of all that were watched since there was none.
    longest: Option<Ttl>,
}

/// Which hold: its address, which nothing else has while it is watched. Its id does not tell, since
/// an adopted one may be a Java thread's, which has the same for every lock.
type Key = usize;

fn key(hold: &Hold) -> Key {
    std::ptr::from_ref(hold).addr()
}

impl Watchdog {
    /// Watches a hold until [`Watchdog::forget`] or its loss.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.lock().put(hold);
        self.changed.notify_one();
    }

    /// Watches an adopted hold. False if this client watches it already.
    pub(crate) fn watch_new(&self, hold: &Arc<Hold>) -> bool {
        let mut schedule = self.lock();
        let same =
            |seen: &Hold| seen.claim.id == hold.claim.id && seen.claim.name == hold.claim.name;
        if schedule.watched.values().any(|(seen, _)| same(seen)) {
            return false;
        }
        schedule.put(hold);
        drop(schedule);
        self.changed.notify_one();
        true
    }

    /// The lease of a watched hold has changed.
    pub(crate) fn look_again(&self, hold: &Arc<Hold>) {
        self.lock().put_back(hold);
        self.changed.notify_one();
    }

    /// Stops watching. A batch that is out may still carry the hold, but changes nothing.
    pub(crate) fn forget(&self, hold: &Hold) {
        self.lock().remove(key(hold));
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
        let key = key(hold);
        self.remove(key);
        let at = hold.due().min(hold.deadline());
        self.longest = self.longest.max(Some(hold.longest()));
        self.due.insert((at, key), Arc::clone(hold));
        self.watched.insert(key, (Arc::clone(hold), Some(at)));
    }

    fn remove(&mut self, key: Key) {
        if let Some((_, Some(at))) = self.watched.remove(&key) {
            self.due.remove(&(at, key));
        }
        if self.watched.is_empty() {
            self.longest = None;
        }
    }

    /// Puts a hold back after a batch, unless it was forgotten meanwhile.
    fn put_back(&mut self, hold: &Arc<Hold>) {
        if self.watched.contains_key(&key(hold)) {
            self.put(hold);
        }
    }

    fn next(&self) -> Moment {
        self.due.keys().next().map_or(Moment::NEVER, |(at, _)| *at)
    }

    /// Takes what is due at `now`, and what may as well go along.
    fn take(&mut self, now: Moment) -> Vec<Arc<Hold>> {
        let along = |hold: &Hold| ALONG.min(hold.term().ttl().period() / 2);
        let upto = (now.after(ALONG), Key::MAX);
        let ready = self
            .due
            .range(..=upto)
            .filter(|((at, _), hold)| *at <= now.after(along(hold)));
        let keys: Vec<_> = ready.map(|(key, _)| *key).collect();
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
    let (mut batches, mut introducing) = (JoinSet::new(), JoinSet::new());
    loop {
        let (next, longest) = {
            let schedule = shared.watchdog.lock();
            (schedule.next(), schedule.longest)
        };
        let introduce = shared.presence.due(longest, shared.clock.now());
        if introducing.is_empty() && introduce <= shared.clock.now() {
            introducing.spawn(presence::refresh(Arc::clone(shared)));
        }
        let next = if introducing.is_empty() {
            next.min(introduce)
        } else {
            next
        };
        tokio::select! {
            _ = shared.life.ended() => return,
            () = shared.clock.sleep_until(next), if next < Moment::NEVER => {}
            () = shared.watchdog.changed.notified() => {}
            Some(_) = batches.join_next() => {}
            Some(_) = introducing.join_next() => {}
            Ok(()) = resets.changed() => {
                shared.presence.reconnected(shared.clock.now());
                distrust_all(shared);
            }
        }
        let due = shared.watchdog.lock().take(shared.clock.now());
        for (kind, batch) in into_batches(shared, due) {
            let span = shared.observer.renewing(batch.len());
            let renewal = renew(Arc::clone(shared), kind, batch, span.clone());
            batches.spawn(renewal.instrument(span));
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

/// Groups holds by kind and slot, and lets go of those that are over.
fn into_batches(shared: &Shared, due: Vec<Arc<Hold>>) -> Vec<(Kind, Vec<Arc<Hold>>)> {
    let mut groups: BTreeMap<(Kind, u64), Vec<Arc<Hold>>> = BTreeMap::new();
    for hold in due {
        if hold.over().is_some() || hold.is_detached() {
            shared.watchdog.forget(&hold);
        } else {
            let group = (hold.claim.kind, shared.store.slot(&hold.claim.name));
            groups.entry(group).or_default().push(hold);
        }
    }
    let chunks = groups.iter().flat_map(|((kind, _), holds)| {
        let chunks = holds.chunks(BATCH);
        chunks.map(|chunk| (*kind, chunk.to_vec()))
    });
    chunks.collect()
}

/// Asks the store about one batch, and tells every hold what was said of it.
async fn renew(shared: Arc<Shared>, kind: Kind, holds: Vec<Arc<Hold>>, span: Span) {
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
    let patience = holds.iter().map(|hold| hold.term().ttl().period()).min();
    let until = asked.after(patience.unwrap_or_default());
    let ttls: Vec<_> = renewals.iter().map(|renewal| renewal.ttl).collect();
    let outcome = kind.renew(&shared.store, renewals, until).await;
    let answered = matches!(&outcome, Outcome::Done(_));
    span.record("outcome", if answered { "answered" } else { "unknown" });
    match outcome {
        Outcome::Done(held) if held.len() == holds.len() => {
            for ((hold, held), ttl) in holds.iter().zip(held).zip(ttls) {
                if held {
                    let margin = hold.remaining();
                    if ttl.is_some() && !margin.is_zero() {
                        shared.observer.renewed(&hold.claim, margin);
                    }
                    hold.confirmed(asked, ttl);
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
            schedule.remove(key(hold));
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
        let pause = hold.term().ttl().period() / 8;
        hold.doubt(pause.min(Duration::from_millis(500)));
    }
}
