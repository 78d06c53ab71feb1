//! What every store promises: one suite, run on each of them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail as tests do"
)]

#[macro_use]
mod suite;
mod mutex;
