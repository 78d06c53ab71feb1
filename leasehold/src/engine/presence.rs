//! What the store knows of this client, for operators. No lock waits for it or fails by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Core, Shared};
use crate::error::{Error, Result};
use crate::model::{ClientId, HoldId, Moment, Ttl};
use crate::op::record::{Card, DeleteRecord, ReadRecord, Record, WriteRecord};
use crate::store::{Flight, Introduction, Outcome};

/// How long a record lives at least.
const SHORTEST: Duration = Duration::from_secs(60);
/// Who holds for less than this does not write: a lock and its release stay two commands.
const SETTLED: Duration = Duration::from_secs(1);
/// How much of a name of a host or a program is told.
const LONGEST: usize = 64;

/// When the record is to be written again.
#[derive(Debug)]
pub(crate) struct Presence {
    introduction: Arc<Introduction>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Not before then, unless a longer lease is held than the record lasts.
    next: Moment,
    /// How long the record was asked to live.
    ttl: Ttl,
    /// The server refused: it is not asked again on this connection.
    refused: bool,
    /// Since when the watchdog has had holds without a pause.
    holding: Option<Moment>,
    /// Until when holds that were let go may live.
    left: Moment,
}

/// What a client says of itself when it connects.
pub(crate) fn introduction(id: ClientId, label: &str) -> Introduction {
    let short = |text: &str| text.chars().take(LONGEST).collect::<String>();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let card = Card {
        host: short(&rustix::system::uname().nodename().to_string_lossy()),
        pid: std::process::id(),
        program: short(&program),
        label: label.to_owned(),
    };
    Introduction::new(WriteRecord::new(id, card, ttl(SHORTEST)))
}

/// A TTL of a record, at least the shortest.
fn ttl(time: Duration) -> Ttl {
    Ttl::fixed(time.clamp(SHORTEST, Ttl::LONGEST)).unwrap_or(Ttl::DEFAULT)
}

impl Presence {
    /// The store has just written the record, or tried to.
    pub(crate) fn new(introduction: Arc<Introduction>, now: Moment) -> Self {
        let ttl = ttl(SHORTEST);
        let inner = Inner {
            next: now.after(ttl.period()),
            ttl,
            refused: false,
            holding: None,
            left: now,
        };
        Self {
            introduction,
            inner: Mutex::new(inner),
        }
    }

    /// When the record is to be written; never while nothing is held, nor lives on after it was
    /// let go. `longest` is the longest lease that is held.
    pub(crate) fn due(&self, longest: Option<Ttl>, now: Moment) -> Moment {
        let mut inner = self.lock();
        let settled = if longest.is_some() {
            inner.holding.get_or_insert(now).after(SETTLED)
        } else {
            inner.holding = None;
            now
        };
        let left = (now < inner.left).then(|| ttl(inner.left.since(now)));
        let Some(longest) = longest.max(left).filter(|_| !inner.refused) else {
            return Moment::NEVER;
        };
        let next = if longest > inner.ttl { now } else { inner.next };
        next.max(settled)
    }

    /// The store wrote the record with the handshake of a new connection, or tried to.
    pub(crate) fn reconnected(&self, now: Moment) {
        let mut inner = self.lock();
        inner.refused = false;
        inner.next = now.after(inner.ttl.period());
    }

    /// A hold was let go that may live until `end`.
    pub(crate) fn leaves(&self, end: Moment) {
        let mut inner = self.lock();
        inner.left = inner.left.max(end);
    }

    /// The record with a TTL for all that is held; none once it was withdrawn. It counts as
    /// written, whatever comes of it: a failure is made up for next time.
    fn refresh(&self, longest: Ttl, now: Moment) -> Option<WriteRecord> {
        let mut inner = self.lock();
        inner.ttl = ttl(longest.as_duration().max(inner.left.since(now)));
        inner.next = now.after(inner.ttl.period());
        self.introduction.lasts(inner.ttl);
        self.introduction.record()
    }

    fn refused(&self, error: &Error) {
        tracing::debug!(%error, "the record of this client was refused");
        self.lock().refused = true;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the record live on. Tried once: the next time makes up for a failure.
pub(super) async fn refresh(shared: Arc<Shared>) {
    let (presence, now) = (&shared.presence, shared.clock.now());
    let held = shared
        .watchdog
        .holds()
        .into_iter()
        .map(|hold| hold.longest());
    let Some(record) = presence.refresh(held.max().unwrap_or(Ttl::DEFAULT), now) else {
        return;
    };
    let until = now.after(shared.limits.call);
    match shared.store.run(&record, &Flight::default(), until).await {
        Outcome::Done(since) => presence.introduction.written(since),
        Outcome::Refused(error) if !error.is_retryable() => presence.refused(&error),
        Outcome::Refused(_) | Outcome::Unknown(_) => {}
    }
}

impl Core {
    /// Takes the record away; if holds were left behind, it stays for as long as they may.
    pub(crate) async fn withdraw(&self, until: Moment) {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        let left = shared.presence.lock().left.since(now);
        let Some(mut record) = shared.presence.introduction.withdraw() else {
            return;
        };
        let flight = Flight::default();
        if left.is_zero() {
            let delete = DeleteRecord::of(&record);
            let _ = shared.store.run(&delete, &flight, until).await;
        } else {
            record.ttl = ttl(left);
            let _ = shared.store.run(&record, &flight, until).await;
        }
    }

    /// What the client of a hold says of itself. Nothing if it left no record, or if that may
    /// not be read: whoever asks has learned the rest already.
    pub(crate) async fn record_of(&self, hold: &HoldId) -> Result<Record> {
        let Some(client) = ClientId::of(hold) else {
            return Ok(Record::default());
        };
        let (read, flight) = (ReadRecord::of(client), Flight::default());
        let until = self.call_limit();
        let asked = async {
            Ok(match self.shared.store.run(&read, &flight, until).await {
                Outcome::Done(record) => record,
                Outcome::Refused(_) | Outcome::Unknown(_) => Record::default(),
            })
        };
        self.shared.life.while_open(asked).await
    }
}
