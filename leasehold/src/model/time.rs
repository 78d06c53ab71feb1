//! Points in time as a store's clock tells them.

use std::time::Duration;

/// A point on the store's own clock: the time since that clock's origin.
///
/// Moments of two stores must not be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Later than every moment that a clock can tell.
    pub(crate) const NEVER: Self = Self(Duration::MAX);

    pub(crate) const fn from_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    pub(crate) const fn since_origin(self) -> Duration {
        self.0
    }

    pub(crate) const fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// The time from `earlier` to `self`, zero when `earlier` is later.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// What one operation sees as the present, read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Milliseconds on the store's clock; expiry counts in these.
    pub(crate) mono_ms: u64,
    /// Milliseconds since the Unix epoch, as peers on other machines expect them.
    pub(crate) epoch_ms: u64,
    /// Microseconds since the Unix epoch, for tokens.
    pub(crate) epoch_us: u64,
}
