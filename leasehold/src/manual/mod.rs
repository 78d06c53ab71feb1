//! The manual: how to choose, what holds, and what does not.

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}
