//! The local queue: of all waiters of one client on one lock, one goes to the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::Kind;
use super::hub::Listening;
use crate::error::{Error, Result};
use crate::model::{Moment, Name};
use crate::store::Clock;

/// Lines of waiters, one for each lock, kind and side.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: Arc<Lines>,
}

pub(crate) type Key = (Kind, Name);

#[derive(Debug, Default)]
struct Lines(Mutex<HashMap<Key, Arc<Line>>>);

/// One line. First come, first served: tokio's mutex is fair, and whoever leaves it is skipped.
#[derive(Debug, Default)]
struct Line {
    seat: Arc<tokio::sync::Mutex<Seat>>,
    /// What the first in line heard last.
    word: Mutex<Word>,
}

/// What the first in line heard from the store.
#[derive(Clone, Debug, Default)]
pub(crate) enum Word {
    /// Nothing was asked yet.
    #[default]
    Nothing,
    /// A definite answer.
    Answered,
    /// Nothing yet, since then.
    Asked(Moment),
    /// No answer since then, but this.
    Failed(Error, Moment),
}

/// A store that does not answer for so long cannot be called busy.
pub(crate) const SILENCE: Duration = Duration::from_millis(250);

/// What the first in line finds: left there by the one before.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// The subscription, kept while anybody waits.
    pub(crate) listening: Option<Listening>,
    /// Somebody of this client took the lock just now, and its lease ends then unless renewed.
    pub(crate) busy_until: Option<Moment>,
}

/// A place in a line.
#[derive(Debug)]
struct Place {
    lines: Arc<Lines>,
    key: Key,
    line: Option<Arc<Line>>,
}

/// The first place in a line.
#[derive(Debug)]
pub(crate) struct Turn {
    seat: Option<OwnedMutexGuard<Seat>>,
    place: Place,
}

impl Queue {
    /// Returns when the caller is the first in line; none at `limit`, or an error if the store
    /// answered nobody in this line at that time.
    pub(crate) async fn turn(&self, key: Key, clock: Clock, limit: Moment) -> Result<Option<Turn>> {
        let place = self.lines.enter(key);
        let line = place.line();
        let seat = clock
            .limit(limit, Arc::clone(&line.seat).lock_owned())
            .await;
        match seat {
            Some(seat) if clock.now() < limit => Ok(Some(Turn {
                seat: Some(seat),
                place,
            })),
            Some(_) | None => line.silence(clock.now()).map_or(Ok(None), Err),
        }
    }

    /// How many locks are waited for.
    #[cfg(feature = "test-util")]
    pub(crate) fn len(&self) -> usize {
        self.lines
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

impl Lines {
    fn enter(self: &Arc<Self>, key: Key) -> Place {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = Arc::clone(lines.entry(key.clone()).or_default());
        Place {
            lines: Arc::clone(self),
            key,
            line: Some(line),
        }
    }
}

impl Place {
    fn line(&self) -> Arc<Line> {
        self.line.clone().unwrap_or_default()
    }
}

impl Line {
    /// Why nobody in this line can be told that the lock is busy, if that is so.
    fn silence(&self, now: Moment) -> Option<Error> {
        match self.word().clone() {
            Word::Failed(error, _) => Some(error),
            Word::Asked(since) if now.since(since) >= SILENCE => {
                Some(Error::Timeout(now.since(since)))
            }
            Word::Asked(_) | Word::Answered | Word::Nothing => None,
        }
    }

    fn word(&self) -> std::sync::MutexGuard<'_, Word> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.line = None;
        // Entering and leaving hold this mutex, and every place has the line, so a line with one
        // owner has nobody in it.
        if lines
            .get(&self.key)
            .is_some_and(|line| Arc::strong_count(line) == 1)
        {
            let gone = lines.remove(&self.key);
            drop(lines);
            drop(gone);
        }
    }
}

impl Turn {
    pub(crate) fn seat(&mut self) -> Option<&mut Seat> {
        self.seat.as_deref_mut()
    }

    /// Whether the last that this line heard was a definite answer.
    pub(crate) fn was_answered(&self) -> bool {
        matches!(*self.place.line().word(), Word::Answered)
    }

    /// Since when this line has had no answer, if that is so.
    pub(crate) fn failing_since(&self) -> Option<Moment> {
        match *self.place.line().word() {
            Word::Failed(_, since) => Some(since),
            Word::Nothing | Word::Answered | Word::Asked(_) => None,
        }
    }

    /// Tells those behind what was heard. Asking again does not undo a failure.
    pub(crate) fn tell(&self, word: Word) {
        let line = self.place.line();
        let mut last = line.word();
        if !matches!((&*last, &word), (Word::Failed(..), Word::Asked(_))) {
            *last = word;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Before the place, so that the line can be seen to be empty.
        self.seat = None;
    }
}
