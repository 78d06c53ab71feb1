//! The record of a client: who it is, for operators. No lock depends on it.

use std::sync::Arc;

use super::{Args, Operation, Raw, Script, State};
use crate::error::Result;
use crate::model::{ClientId, Now, Ttl};

pub(crate) const WRITE: Script = Script {
    name: "record_write",
    text: include_str!("lua/record_write.lua"),
};
pub(crate) const DELETE: Script = Script {
    name: "record_delete",
    text: include_str!("lua/record_delete.lua"),
};
pub(crate) const READ: Script = Script {
    name: "record_read",
    text: include_str!("lua/record_read.lua"),
};

/// The fields of a record, in the order in which they are sent and read.
const FIELDS: [&str; 5] = ["host", "pid", "program", "label", "since"];
/// What is read of a field that somebody else may have written.
const LONGEST: usize = 256;

/// What a client says of itself.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) program: String,
    /// Empty for none.
    pub(crate) label: String,
}

/// Writes the record, or lets it live longer.
#[derive(Clone, Debug)]
pub(crate) struct WriteRecord {
    key: Arc<str>,
    card: Arc<Card>,
    /// Milliseconds since the epoch, once the store has said so.
    pub(crate) since: Option<u64>,
    pub(crate) ttl: Ttl,
}

impl WriteRecord {
    pub(crate) fn new(client: ClientId, card: Card, ttl: Ttl) -> Self {
        Self {
            key: client.record().into(),
            card: Arc::new(card),
            since: None,
            ttl,
        }
    }

    fn values(&self, since: &str) -> [String; 5] {
        let Card {
            host,
            pid,
            program,
            label,
        } = &*self.card;
        let pid = pid.to_string();
        [
            host.clone(),
            pid,
            program.clone(),
            label.clone(),
            since.to_owned(),
        ]
    }
}

impl Operation for WriteRecord {
    const SCRIPT: Script = WRITE;
    /// Since when the client is there, if the store says so.
    type Reply = Option<u64>;

    fn keys(&self) -> Vec<&str> {
        vec![&self.key]
    }

    fn args(&self, out: &mut Args) {
        out.number(self.since.unwrap_or(0));
        out.number(self.ttl.as_millis());
        let [host, pid, program, label, _] = self.values("");
        out.text(host).text(pid).text(program).text(label);
    }

    fn parse(raw: Raw) -> Result<Option<u64>> {
        Ok(raw.text()?.parse().ok())
    }

    fn apply(&self, state: &mut State, now: Now) -> Result<Option<u64>> {
        let stands = state.hash(&self.key)?;
        let stands = stands.get("since").and_then(|since| since.parse().ok());
        let since = self.since.or(stands).unwrap_or(now.epoch_ms);
        for (field, value) in FIELDS.iter().zip(self.values(&since.to_string())) {
            state.set_field(&self.key, field, value)?;
        }
        state.prolong(&self.key, self.ttl.as_millis(), now.mono_ms);
        Ok(Some(since))
    }
}

/// Deletes the record.
#[derive(Clone, Debug)]
pub(crate) struct DeleteRecord(Arc<str>);

impl DeleteRecord {
    pub(crate) fn of(written: &WriteRecord) -> Self {
        Self(Arc::clone(&written.key))
    }
}

impl Operation for DeleteRecord {
    const SCRIPT: Script = DELETE;
    /// Whether there was one.
    type Reply = bool;

    fn keys(&self) -> Vec<&str> {
        vec![&self.0]
    }

    fn args(&self, _out: &mut Args) {}

    fn parse(raw: Raw) -> Result<bool> {
        Ok(raw.int()? == 1)
    }

    fn apply(&self, state: &mut State, _now: Now) -> Result<bool> {
        state.hash(&self.0)?;
        Ok(state.remove(&self.0))
    }
}

/// Reads the record of any client.
#[derive(Clone, Debug)]
pub(crate) struct ReadRecord(Arc<str>);

impl ReadRecord {
    pub(crate) fn of(client: ClientId) -> Self {
        Self(client.record().into())
    }
}

/// What is known of a client; nothing of one that left no record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) program: Option<String>,
    pub(crate) label: Option<String>,
    /// Milliseconds since the epoch, on the store's clock.
    pub(crate) since: Option<u64>,
}

impl Record {
    fn of(fields: impl IntoIterator<Item = String>) -> Self {
        let bounded = |text: String| text.chars().take(LONGEST).collect::<String>();
        let mut fields = fields.into_iter().map(bounded);
        let mut next = || fields.next().filter(|text| !text.is_empty());
        Self {
            host: next(),
            pid: next().and_then(|pid| pid.parse().ok()),
            program: next(),
            label: next(),
            since: next().and_then(|since| since.parse().ok()),
        }
    }
}

impl Operation for ReadRecord {
    const SCRIPT: Script = READ;
    type Reply = Record;

    fn keys(&self) -> Vec<&str> {
        vec![&self.0]
    }

    fn args(&self, _out: &mut Args) {}

    fn parse(raw: Raw) -> Result<Record> {
        let fields = raw.list()?;
        let fields = fields.iter().map(Raw::text).collect::<Result<Vec<_>>>()?;
        Ok(Record::of(fields))
    }

    fn apply(&self, state: &mut State, _now: Now) -> Result<Record> {
        let mut hash = state.hash(&self.0)?;
        Ok(Record::of(
            FIELDS.map(|field| hash.remove(field).unwrap_or_default()),
        ))
    }
}
