#![doc = include_str!("manual/overview.md")]

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod engine;
mod error;
mod lock;
pub mod manual;
mod model;
mod op;
#[cfg(feature = "planted-faults")]
pub mod planted;
#[cfg(not(feature = "planted-faults"))]
mod planted;
mod store;
#[cfg(feature = "test-util")]
pub mod testing;

pub use client::{Client, ClientBuilder, CloseReport};
pub use error::{Error, Refusal, Result};
pub use lock::{Holder, Lease, Mutex, MutexGuard, Status};
pub use model::hold::HoldId;
pub use model::lease::LeaseState;
pub use model::owner::{Identity, Owner};
pub use model::token::Token;
pub use model::wait::{Backoff, Wait};
pub use model::wire::Wire;
pub use store::memory::Memory;
