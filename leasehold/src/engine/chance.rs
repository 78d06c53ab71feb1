//! Numbers that keep waiters apart.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// A time of up to `most`.
pub(super) fn jitter(most: Duration) -> Duration {
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random() % nanos)
}

/// A number that no other waiter is likely to have.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
