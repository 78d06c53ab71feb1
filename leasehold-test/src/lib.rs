//! The test kit: real servers, stores to run a suite on, and a lock-taker that can be killed.
//!
//! A kit that cannot set up a test ends that test, with a sentence that says why.
#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "a kit for tests: it fails by panicking, and nobody else depends on it"
)]

pub mod authority;
pub mod backend;
pub mod random;
pub mod relay;
pub mod server;
pub mod taker;
pub mod time;

pub use authority::Authority;
pub use backend::{Backend, Kind, flavoured};
pub use random::Random;
pub use relay::Relay;
pub use server::Server;
pub use taker::Taker;
pub use time::{eventually, in_time, within};
