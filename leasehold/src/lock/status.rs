//! What an operator sees of a lock.

use std::time::Duration;

use crate::error::Result;
use crate::model::HoldId;
use crate::op::mutex::Inspected;

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The lock's name.
    pub name: String,
    /// Who holds it.
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
}
