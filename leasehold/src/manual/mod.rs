//! The manual: how to choose, what holds, and what does not.
//!
//! | page | answers |
//! |---|---|
//! | [`choosing`] | Is a lock what you need, and on which store? |
//! | [`connecting`] | How do you reach a server, under TLS, with the rights that are needed and no others? |
//! | [`guarantees`] | What holds under which fault, and what does not? |
//! | [`leases_and_loss`] | How long is a lock yours, and how do you learn that it no longer is? |
//! | [`fencing`] | How does a resource refuse a write that comes too late? |
//! | [`reentrancy`] | Who may enter again? |
//! | [`from_redisson`] | Which call does what a method of Redisson's locks does? |
//! | [`cancelling`] | What is left when a future or a guard is dropped? |
//! | [`observing`] | What is told to `tracing`, and measured for `metrics`? |
//! | [`testing`] | How do you test code that takes locks? |
//! | [`blocking`](crate::blocking) | How do threads take locks, without asynchronous code? |
//! | [`the_command`] | `leasehold run` and its exit codes |

#[doc = include_str!("cancelling.md")]
pub mod cancelling {}

#[doc = include_str!("choosing.md")]
pub mod choosing {}

#[doc = include_str!("connecting.md")]
pub mod connecting {}

#[doc = include_str!("fencing.md")]
pub mod fencing {}

#[doc = include_str!("from_redisson.md")]
pub mod from_redisson {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("leases_and_loss.md")]
pub mod leases_and_loss {}

#[doc = include_str!("observing.md")]
pub mod observing {}

#[doc = include_str!("reentrancy.md")]
pub mod reentrancy {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("the_command.md")]
pub mod the_command {}

// The example of the README must compile, too.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
