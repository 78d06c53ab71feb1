//! Defects of other lock libraries, restated as tests of ours. The ids are those of the table in
//! the kit's README; each name tells what holds here.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail as tests do"
)]

#[path = "bug_cases/cancelling.rs"]
mod cancelling;
#[path = "bug_cases/life_cycle.rs"]
mod life_cycle;
#[path = "bug_cases/names.rs"]
mod names;
#[path = "bug_cases/reentrancy.rs"]
mod reentrancy;
#[path = "bug_cases/wake_ups.rs"]
mod wake_ups;
#[path = "bug_cases/watchdog.rs"]
mod watchdog;

/// Makes a test of each fact for each store named, in a module of the store's name.
macro_rules! on_stores {
    ($($store:ident: $kind:ident [$($fact:ident),* $(,)?])*) => {$(
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let backend = leasehold_test::Backend::start(leasehold_test::Kind::$kind).await;
                    leasehold_test::within(stringify!($fact), super::$fact(backend)).await;
                }
            )*
        }
    )*};
}
use on_stores;
