//! Who may enter again, and how a hold is named in a question.

use std::fmt;

use super::{ClientId, HoldId};

/// Who may enter a lock again: everybody who shows it. From [`Client::owner`].
///
/// It belongs to the client that made it; a handle of another client refuses it as
/// [`Error::Config`]. Clones are the same owner. It keeps nothing alive and holds nothing itself.
///
/// [`Client::owner`]: crate::Client::owner
/// [`Error::Config`]: crate::Error::Config
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    client: ClientId,
    serial: u64,
}

impl Owner {
    pub(crate) fn new(client: ClientId, serial: u64) -> Self {
        Self { client, serial }
    }

    pub(crate) fn belongs_to(&self, client: ClientId) -> bool {
        self.client == client
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({} of {})", self.serial, self.client)
    }
}

/// What a lock can be asked about: a [`HoldId`] or an [`Owner`]. Nothing else implements it.
pub trait Identity: Named {}

impl Identity for HoldId {}
impl Identity for Owner {}

use sealed::Named;
pub(crate) use sealed::Who;

#[expect(unnameable_types, reason = "that is what seals the trait")]
mod sealed {
    use super::{HoldId, Owner};

    pub trait Named {
        fn who(&self) -> Who<'_>;
    }

    /// An identity as the engine sees it.
    #[derive(Debug)]
    pub enum Who<'a> {
        Hold(&'a HoldId),
        Owner(&'a Owner),
    }

    impl Named for HoldId {
        fn who(&self) -> Who<'_> {
            Who::Hold(self)
        }
    }

    impl Named for Owner {
        fn who(&self) -> Who<'_> {
            Who::Owner(self)
        }
    }
}
