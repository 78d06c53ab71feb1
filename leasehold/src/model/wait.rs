//! How a busy lock is waited for.

use std::time::Duration;

use crate::error::{Error, Result};

/// How a waiter learns that a lock may be free.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Wait {
    /// Sleep until a release is announced, or the holder's lease has run out. The default.
    #[default]
    Notify,
    /// Ask again and again, with pauses: the spin lock. For holders that announce nothing.
    Poll(Backoff),
}

/// The pauses between two tries of a polling waiter.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    factor: u32,
}

impl Backoff {
    /// Pauses that grow from `first` by `factor` up to `most`, each with jitter of up to a half.
    #[must_use]
    pub const fn exponential(first: Duration, most: Duration, factor: u32) -> Self {
        Self {
            first,
            most,
            factor,
        }
    }

    /// The same pause each time, without jitter.
    #[must_use]
    pub const fn constant(pause: Duration) -> Self {
        Self {
            first: pause,
            most: pause,
            factor: 1,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let usable = !self.first.is_zero() && self.first <= self.most && self.factor > 0;
        if usable && self.most <= Duration::from_secs(3600) {
            return Ok(());
        }
        Err(Error::config(
            "a back-off needs 0 < first <= most <= 1 h and a factor of at least 1",
        ))
    }

    /// The pause before try number `attempt`, the first being 0; `random` is any number.
    pub(crate) fn pause(&self, attempt: u32, random: u64) -> Duration {
        let grown = self
            .first
            .saturating_mul(self.factor.saturating_pow(attempt));
        let base = grown.min(self.most);
        if self.first == self.most {
            return base;
        }
        let half = base / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_nanos(random % nanos)
    }
}

impl Default for Backoff {
    /// From 1 ms, doubled up to 128 ms, as Redisson's spin lock.
    fn default() -> Self {
        Self::exponential(Duration::from_millis(1), Duration::from_millis(128), 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_most_and_stay_within_it() {
        let backoff = Backoff::default();
        for attempt in 0..200 {
            for random in [0, 1, u64::MAX / 2, u64::MAX] {
                let pause = backoff.pause(attempt, random);
                let full = Duration::from_millis(1 << attempt.min(7));
                assert!(
                    pause >= full / 2 && pause <= full,
                    "{attempt} {random} {pause:?}"
                );
            }
        }
        assert_eq!(
            Backoff::constant(Duration::from_millis(64))
                .pause(9, 5)
                .as_millis(),
            64
        );
    }
}
