//! The local queue: of all waiters of one client on one lock, one goes to the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::Kind;
use super::hub::Listening;
use crate::model::{Moment, Name};

/// Lines of waiters, one for each lock, kind and side.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: Arc<Lines>,
}

type Key = (Kind, Name);

#[derive(Debug, Default)]
struct Lines(Mutex<HashMap<Key, Arc<Line>>>);

/// First come, first served: tokio's mutex is fair, and whoever leaves it is skipped.
type Line = tokio::sync::Mutex<Seat>;

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
    _place: Place,
}

impl Queue {
    /// Returns when the caller is the first in line.
    pub(crate) async fn turn(&self, kind: Kind, name: &Name) -> Turn {
        let place = self.lines.enter((kind, name.clone()));
        let line = place.line.clone().unwrap_or_default();
        Turn {
            seat: Some(line.lock_owned().await),
            _place: place,
        }
    }

    /// How many locks are waited for.
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

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.line = None;
        // Entering and leaving hold this mutex, so a line with one owner has nobody in it.
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
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Before the place, so that the line can be seen to be empty.
        self.seat = None;
    }
}
