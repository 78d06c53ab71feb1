//! The clock that both sides of a supervision read: it counts suspend, as the store's does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since boot.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let millis = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or(0);
    seconds * 1000 + millis
}

/// A length in whole milliseconds, rounded down.
pub(super) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
