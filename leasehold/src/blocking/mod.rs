#![doc = include_str!("../manual/blocking.md")]

mod client;
mod driver;
mod guard;
mod interrupt;
mod lease;
mod mutex;

pub use client::{Client, ClientBuilder};
pub use guard::MutexGuard;
pub use interrupt::Interrupt;
pub use lease::Lease;
pub use mutex::Mutex;
