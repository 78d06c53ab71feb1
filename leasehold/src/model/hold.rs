//! Who holds: the identity of one acquisition.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};

/// What the keys of all clients' records begin with.
const RECORDS: &str = "leasehold:client:";

/// The random identity of one client, fresh for every client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ClientId(uuid::Uuid);

impl ClientId {
    pub(crate) fn random() -> Self {
        Self(uuid::Uuid::new_v4())
    }

    /// The identity of this client's acquisition number `serial`.
    pub(crate) fn hold(self, serial: u64) -> HoldId {
        HoldId(format!("{}:{serial}", self.0).into())
    }

    /// The client of a hold, if the hold's identity names one.
    pub(crate) fn of(hold: &HoldId) -> Option<Self> {
        let (client, _) = hold.as_str().split_once(':')?;
        uuid::Uuid::try_parse(client).ok().map(Self)
    }

    /// The key of what this client says of itself.
    pub(crate) fn record(self) -> String {
        format!("{RECORDS}{}", self.0)
    }

    /// Whether a key is that of a client's record.
    pub(crate) fn is_record(key: &str) -> bool {
        let client = key.strip_prefix(RECORDS);
        client.is_some_and(|client| uuid::Uuid::try_parse(client).is_ok())
    }
}

/// The identity of one hold, as it stands on the wire: `uuid:digits`.
///
/// Every acquisition gets a fresh one. It is no secret, but whoever shows it may release the hold.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldId(Arc<str>);

impl HoldId {
    /// The text as it stands on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A field that was found in a lock, whoever wrote it.
    pub(crate) fn found(field: &str) -> Self {
        Self(field.into())
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for HoldId {
    type Err = Error;

    /// Reads `uuid:digits`; digits may have a leading minus, as Java's thread ids do.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::config(format!("{text:?} is no hold id: expected uuid:digits"));
        let (client, serial) = text.split_once(':').ok_or_else(bad)?;
        let digits = serial.strip_prefix('-').unwrap_or(serial);
        let hyphenated = client.len() == 36 && uuid::Uuid::try_parse(client).is_ok();
        let decimal = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if hyphenated && decimal {
            Ok(Self(text.into()))
        } else {
            Err(bad())
        }
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HoldId({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_id_reads_back() {
        let hold = ClientId::random().hold(7);
        assert_eq!(hold.as_str().parse::<HoldId>().unwrap(), hold);
        assert!(
            "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:-12"
                .parse::<HoldId>()
                .is_ok()
        );
    }

    #[test]
    fn other_text_is_no_hold_id() {
        for bad in [
            "",
            "x",
            ":1",
            "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:",
            "a:1",
            "71b96ce827464f0c9d6e0d7c1f3a5b11:1",
            "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:1x",
        ] {
            assert!(bad.parse::<HoldId>().is_err(), "{bad:?}");
        }
    }
}
