//! How long a lease lasts, checked once.

use std::time::Duration;

use crate::error::{Error, Result};

/// The time that a key lives on the server, in whole milliseconds, within sane bounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Ttl(u64);

impl Ttl {
    /// The lease of a lock that names none, as Redisson's watchdog has it.
    pub(crate) const DEFAULT: Self = Self(30_000);
    /// Below this nothing is left after the safety margin and one round trip.
    pub(crate) const SHORTEST: Duration = Duration::from_millis(10);
    /// Below this a renewal every third of the lease could not be in time.
    pub(crate) const SHORTEST_RENEWED: Duration = Duration::from_millis(150);
    /// A hundred years: beyond any use, below any server's limit.
    pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

    /// A lease that is not renewed.
    pub(crate) fn fixed(duration: Duration) -> Result<Self> {
        Self::within("the lease", duration, Self::SHORTEST)
    }

    /// A lease that is renewed every third of it.
    pub(crate) fn renewed(duration: Duration) -> Result<Self> {
        Self::within(
            "the TTL of a renewed lease",
            duration,
            Self::SHORTEST_RENEWED,
        )
    }

    fn within(what: &str, duration: Duration, shortest: Duration) -> Result<Self> {
        if duration < shortest {
            return Err(Error::config(format!(
                "{what} is {duration:?}; the least is {shortest:?}"
            )));
        }
        if duration > Self::LONGEST {
            return Err(Error::config(format!(
                "{what} is longer than a hundred years"
            )));
        }
        let whole = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Ok(Self(whole))
    }

    /// What is left of a lease that was asked for before, however little.
    pub(crate) fn left(duration: Duration) -> Self {
        let longest = duration.min(Self::LONGEST).as_millis();
        Self(u64::try_from(longest).unwrap_or(u64::MAX).max(1))
    }

    pub(crate) const fn as_millis(self) -> u64 {
        self.0
    }

    pub(crate) const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// The part of the lease that is not relied upon: 1 % for clock rates, 2 ms for resolution.
    pub(crate) const fn margin(self) -> Duration {
        Duration::from_micros(self.0 * 10 + 2_000)
    }

    /// How long a holder may rely on the lease, counted from before the request was made.
    pub(crate) const fn validity(self) -> Duration {
        self.as_duration().saturating_sub(self.margin())
    }

    /// How often a renewed lease is renewed.
    pub(crate) const fn period(self) -> Duration {
        Duration::from_micros(self.0 * 1000 / 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_is_the_ttl_less_one_percent_and_two_milliseconds() {
        let ttl = Ttl::fixed(Duration::from_secs(30)).unwrap();
        assert_eq!(ttl.validity(), Duration::from_millis(30_000 - 300 - 2));
        assert_eq!(ttl.period(), Duration::from_secs(10));
        assert!(Ttl::fixed(Ttl::SHORTEST).unwrap().validity() > Duration::ZERO);
        assert!(Ttl::fixed(Ttl::LONGEST).unwrap().validity() < Ttl::LONGEST);
    }

    #[test]
    fn durations_that_cannot_work_are_refused() {
        for bad in [Duration::ZERO, Duration::from_millis(9), Duration::MAX] {
            assert!(matches!(Ttl::fixed(bad), Err(Error::Config(_))), "{bad:?}");
        }
        assert!(Ttl::renewed(Duration::from_millis(149)).is_err());
    }
}
