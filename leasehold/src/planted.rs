//! Faults that can be planted to see that a test finds them. Feature `planted-faults`.
//!
//! Without the feature `planted` is constant and the branches are not compiled.

/// A fault that the tests must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    feature = "planted-faults",
    expect(clippy::exhaustive_enums, reason = "for tests")
)]
#[cfg_attr(
    not(feature = "planted-faults"),
    expect(unreachable_pub, reason = "public with the feature only")
)]
pub enum Fault {
    /// The lease is counted from the reply instead of from before the request.
    DeadlineFromReply,
    /// A hold is returned although its lease ran out on the way.
    NoRecheck,
    /// A released hold is still renewed.
    RenewalOutlivesRelease,
    /// Waiters are told before the lock is free.
    PublishBeforeDelete,
    /// A script that the server has forgotten reads as a busy lock.
    NoscriptIsBusy,
    /// A release frees the lock whoever holds it.
    ReleaseWithoutOwner,
}

#[cfg(feature = "planted-faults")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Fault;

    static PLANTED: AtomicU8 = AtomicU8::new(u8::MAX);

    /// Plants one fault in this process, for good.
    pub fn plant(fault: Fault) {
        PLANTED.store(fault as u8, Ordering::SeqCst);
    }

    pub(crate) fn planted(fault: Fault) -> bool {
        PLANTED.load(Ordering::SeqCst) == fault as u8
    }
}

#[cfg(feature = "planted-faults")]
pub use switch::plant;
#[cfg(feature = "planted-faults")]
pub(crate) use switch::planted;

/// Whether the fault was planted.
#[cfg(not(feature = "planted-faults"))]
pub(crate) const fn planted(_fault: Fault) -> bool {
    false
}
