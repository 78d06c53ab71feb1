//! Pure values: no I/O, no async, no clock.

pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod time;
pub(crate) mod token;
pub(crate) mod ttl;
pub(crate) mod wait;
pub(crate) mod wire;

pub(crate) use hold::{ClientId, HoldId};
pub(crate) use lease::LeaseTerm;
pub(crate) use name::Name;
pub(crate) use owner::{Identity, Owner, Who};
pub(crate) use time::{Moment, Now};
pub(crate) use token::Token;
pub(crate) use ttl::Ttl;
pub(crate) use wait::{Backoff, Wait};
pub(crate) use wire::Wire;
