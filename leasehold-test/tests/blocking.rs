//! The façade for threads: the core facts of the mutex on every store, and its own traps.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail as tests do"
)]

#[path = "blocking/closing.rs"]
mod closing;
#[path = "blocking/facts.rs"]
mod facts;
#[path = "blocking/inside_async.rs"]
mod inside_async;
#[path = "blocking/interrupts.rs"]
mod interrupts;
#[path = "blocking/support.rs"]
mod support;
#[path = "blocking/thread_owners.rs"]
mod thread_owners;

/// Makes a test of each fact for each store named, in a module of the store's name.
macro_rules! on_stores {
    ($($store:ident: $kind:ident [$($fact:ident),* $(,)?])*) => {$(
        mod $store {
            $(
                #[test]
                fn $fact() {
                    let bench = || crate::support::Bench::new(leasehold_test::Kind::$kind);
                    leasehold_test::in_time(stringify!($fact), move || super::$fact(&bench()));
                }
            )*
        }
    )*};
}

/// As `on_stores!`, on each of them.
macro_rules! everywhere {
    ($($facts:tt)*) => {
        crate::on_stores! {
            memory: Memory [$($facts)*]
            local: Local [$($facts)*]
            redis: Redis [$($facts)*]
        }
    };
}
use {everywhere, on_stores};
