//! The protocol: what is asked of a store, and what it means.
//!
//! An operation is a value. It knows its script, the keys and arguments that it sends, how its
//! reply reads, and what the script does to a [`State`]. A server runs the script; the memory and
//! local stores call [`Operation::apply`]. One test drives both and compares.

pub(crate) mod fence;
pub(crate) mod mutex;
pub(crate) mod plain;
pub(crate) mod record;
pub(crate) mod renew;
pub(crate) mod state;

use crate::error::{Error, Result};
use crate::model::Now;

pub(crate) use state::State;

/// One step of the protocol.
pub(crate) trait Operation: Clone + Send + Sync + 'static {
    /// What the server runs.
    const SCRIPT: Script;
    /// What the caller learns.
    type Reply: Send + 'static;
    /// Whether it may run a second time because the answer to the first is missing.
    const REPEATABLE: bool = true;

    /// The keys that the script touches, all in one slot.
    fn keys(&self) -> Vec<&str>;
    /// The further arguments, in order.
    fn args(&self, out: &mut Args);
    /// Reads the script's reply.
    fn parse(raw: Raw) -> Result<Self::Reply>;
    /// What the script means.
    fn apply(&self, state: &mut State, now: Now) -> Result<Self::Reply>;
}

/// A script's name and text.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// Every script, for loading on a new connection.
pub(crate) const SCRIPTS: [&Script; 13] = [
    &mutex::ACQUIRE,
    &mutex::RELEASE,
    &mutex::FORCE_UNLOCK,
    &mutex::INSPECT,
    &renew::RENEW,
    &plain::ACQUIRE,
    &plain::RELEASE,
    &plain::RENEW,
    &plain::FORCE_UNLOCK,
    &plain::INSPECT,
    &record::WRITE,
    &record::DELETE,
    &record::READ,
];

/// The arguments of a script call.
#[derive(Debug, Default)]
pub(crate) struct Args(Vec<String>);

impl Args {
    pub(crate) fn text(&mut self, value: impl Into<String>) -> &mut Self {
        self.0.push(value.into());
        self
    }

    pub(crate) fn number(&mut self, value: u64) -> &mut Self {
        self.text(value.to_string())
    }

    pub(crate) fn as_slice(&self) -> &[String] {
        &self.0
    }
}

/// A reply as it came, in no client library's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    List(Vec<Self>),
}

impl Raw {
    pub(crate) fn int(&self) -> Result<i64> {
        match self {
            Self::Int(value) => Ok(*value),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn text(&self) -> Result<String> {
        match self {
            Self::Bytes(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn list(self) -> Result<Vec<Self>> {
        match self {
            Self::List(items) => Ok(items),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(raw: &Raw) -> Error {
    Error::protocol(format!("a script replied {raw:?}"))
}

/// The error for a key that holds something else than the lock looked for.
pub(crate) fn wrong_type(key: &str) -> Error {
    Error::protocol(format!(
        "the key {key:?} is of another type, so it is no lock of this kind"
    ))
}
