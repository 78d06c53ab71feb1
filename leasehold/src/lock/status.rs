//! What an operator sees of a lock.

use std::time::Duration;

use crate::error::Result;
use crate::model::HoldId;
use crate::op::mutex::Inspected;
use crate::op::plain;

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The lock's name.
    pub name: String,
    /// Who holds it. In the plain format it is whatever text the holder wrote; bytes that cannot
    /// be shown are escaped.
    pub hold: HoldId,
    /// How many times it was entered.
    pub count: u64,
    /// What is left of the lease; none if it has no end.
    pub remaining: Option<Duration>,
}

impl Status {
    /// None for a lock that is free; an error for a key that is no lock.
    pub(crate) fn read(name: &str, seen: &Inspected) -> Result<Option<Self>> {
        let status = |(hold, count)| {
            let (name, remaining) = (name.to_owned(), seen.remaining());
            Self {
                name,
                hold,
                count,
                remaining,
            }
        };
        Ok(seen.holder()?.map(status))
    }

    /// None for a lock that is free.
    pub(crate) fn read_plain(name: &str, seen: plain::Inspected) -> Option<Self> {
        let (name, count, remaining) = (name.to_owned(), 1, seen.remaining());
        seen.holder.map(|hold| Self {
            name,
            hold,
            count,
            remaining,
        })
    }
}
