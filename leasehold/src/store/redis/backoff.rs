//! The pauses between two attempts to connect.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use crate::model::Moment;
use crate::store::Clock;

const FIRST: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(500);
/// A connection that lasted this long was a good one.
const LASTING: Duration = Duration::from_secs(1);

/// Pauses that double from 20 to 500 ms, each with jitter of up to a half.
///
/// A connection that is lost at once does not reset them, so that a server which takes
/// connections and drops them is not hammered.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    /// When the connection was made that is now lost.
    connected: Option<Moment>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            next: FIRST,
            connected: None,
        }
    }
}

impl Backoff {
    /// Sleeps before the next attempt.
    pub(super) async fn pause(&mut self) {
        let now = Clock::Boot.now();
        if self
            .connected
            .take()
            .is_some_and(|at| now.since(at) >= LASTING)
        {
            self.next = FIRST;
        }
        let half = self.next / 2;
        let random = RandomState::new().build_hasher().finish();
        let jitter = half * u32::try_from(random % 1000).unwrap_or(0) / 1000;
        self.next = (self.next * 2).min(MOST);
        Clock::Boot.sleep_until(now.after(half + jitter)).await;
    }

    /// An attempt succeeded.
    pub(super) fn connected(&mut self) {
        self.connected = Some(Clock::Boot.now());
    }
}
