//! What an operator sees of a lock.

use std::time::Duration;

use super::Holder;
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
    /// The same hold with what its client says of itself, as far as that is known.
    pub holder: Holder,
}

impl Status {
    /// None for a lock that is free; an error for a key that is no lock.
    pub(crate) fn read(name: &str, seen: &Inspected) -> Result<Option<Self>> {
        let status = |(hold, count): (HoldId, u64)| {
            let holder = Holder::unknown(hold.clone(), count);
            let (name, remaining) = (name.to_owned(), seen.remaining());
            Self {
                name,
                hold,
                count,
                remaining,
                holder,
            }
        };
        Ok(seen.holder()?.map(status))
    }

    /// None for a lock that is free.
    pub(crate) fn read_plain(name: &str, seen: plain::Inspected) -> Option<Self> {
        let (name, count, remaining) = (name.to_owned(), 1, seen.remaining());
        seen.holder.map(|hold| Self {
            name,
            holder: Holder::unknown(hold.clone(), count),
            hold,
            count,
            remaining,
        })
    }
}
