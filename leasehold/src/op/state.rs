//! What a store holds: the same keys as a server, with the same types and expiries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wrong_type;
use crate::error::Result;
use crate::model::HoldId;

/// The keys of a store, and the announcements that its operations made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    keys: BTreeMap<String, Entry>,
    /// Announcements in the order in which they were made, for the store to deliver.
    #[serde(skip)]
    outbox: Vec<Announcement>,
    /// Nothing expires before then, so that not every operation walks over all keys.
    #[serde(skip)]
    soonest: u64,
}

/// States are equal when their keys are: the rest is not kept.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

/// A message to everybody who listens on a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) channel: String,
    pub(crate) payload: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    value: Value,
    /// Milliseconds on the store's clock; none for a key that stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

/// A value as a server would hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Value {
    Text(String),
    Hash(BTreeMap<String, String>),
}

impl State {
    /// Forgets every key whose time has come.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        if now_ms < self.soonest {
            return;
        }
        self.keys
            .retain(|_, entry| entry.expires.is_none_or(|at| now_ms < at));
        let ends = self.keys.values().filter_map(|entry| entry.expires);
        self.soonest = ends.min().unwrap_or(u64::MAX);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).map(|entry| &entry.value)
    }

    /// The hash at `key`, empty when there is none; an error when the key is of another type.
    pub(crate) fn hash(&self, key: &str) -> Result<BTreeMap<String, String>> {
        match self.value(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Hash(fields)) => Ok(fields.clone()),
            Some(Value::Text(_)) => Err(wrong_type(key)),
        }
    }

    /// The count in a field of the hash at `key`; 0 when there is none.
    pub(crate) fn count(&self, key: &str, field: &str) -> Result<u64> {
        let Some(Value::Hash(fields)) = self.value(key) else {
            return self.hash(key).map(|_| 0);
        };
        Ok(fields
            .get(field)
            .and_then(|count| count.parse().ok())
            .unwrap_or(0))
    }

    /// The text at `key`; an error when the key is of another type.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Hash(_)) => Err(wrong_type(key)),
        }
    }

    /// The ids of all holds at `key`, whatever its type.
    pub(crate) fn holds(&self, key: &str) -> Vec<HoldId> {
        match self.value(key) {
            None => vec![],
            Some(Value::Text(text)) => text.parse().into_iter().collect(),
            Some(Value::Hash(fields)) => fields.keys().flat_map(|field| field.parse()).collect(),
        }
    }

    /// What outlives the machine's boot: numbers do, while holders and moments do not.
    pub(crate) fn outlive(mut self) -> Self {
        self.keys.retain(|_, entry| {
            let number = matches!(&entry.value, Value::Text(text) if text.parse::<i64>().is_ok());
            number && entry.expires.is_none()
        });
        self
    }

    /// Sets a field, making the hash where there is none. Keeps the expiry.
    pub(crate) fn set_field(&mut self, key: &str, field: &str, value: impl ToString) -> Result<()> {
        let fresh = || Entry {
            value: Value::Hash(BTreeMap::new()),
            expires: None,
        };
        match &mut self.keys.entry(key.to_owned()).or_insert_with(fresh).value {
            Value::Hash(fields) => {
                fields.insert(field.to_owned(), value.to_string());
                Ok(())
            }
            Value::Text(_) => Err(wrong_type(key)),
        }
    }

    /// Puts a text in place of whatever is there, without expiry.
    pub(crate) fn put_text(&mut self, key: &str, text: &str) {
        self.put(key, Value::Text(text.to_owned()));
    }

    /// Puts a value in place of whatever is there, without expiry.
    pub(crate) fn put(&mut self, key: &str, value: Value) {
        self.keys.insert(
            key.to_owned(),
            Entry {
                value,
                expires: None,
            },
        );
    }

    /// Removes a key; whether there was one.
    pub(crate) fn remove(&mut self, key: &str) -> bool {
        self.keys.remove(key).is_some()
    }

    /// What is left of a key's time: -2 without the key, -1 without an expiry.
    pub(crate) fn pttl(&self, key: &str, now_ms: u64) -> i64 {
        match self.keys.get(key) {
            None => -2,
            Some(Entry { expires: None, .. }) => -1,
            Some(Entry {
                expires: Some(at), ..
            }) => i64::try_from(at.saturating_sub(now_ms)).unwrap_or(i64::MAX),
        }
    }

    /// Lets the key live for `ttl_ms` at least. Never shortens a life that has an end.
    pub(crate) fn prolong(&mut self, key: &str, ttl_ms: u64, now_ms: u64) {
        if let Some(entry) = self.keys.get_mut(key) {
            let end = now_ms.saturating_add(ttl_ms);
            let end = entry.expires.map_or(end, |at| at.max(end));
            entry.expires = Some(end);
            self.soonest = self.soonest.min(end);
        }
    }

    /// Moves every expiry by `delta_ms` towards the past.
    #[cfg_attr(
        not(feature = "test-util"),
        expect(dead_code, reason = "tests age keys")
    )]
    pub(crate) fn age(&mut self, delta_ms: u64) {
        for entry in self.keys.values_mut() {
            entry.expires = entry.expires.map(|at| at.saturating_sub(delta_ms));
        }
        self.soonest = 0;
    }

    pub(crate) fn publish(&mut self, channel: &str, payload: &str) {
        let (channel, payload) = (channel.to_owned(), payload.to_owned());
        self.outbox.push(Announcement { channel, payload });
    }

    pub(crate) fn take_outbox(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.outbox)
    }
}
