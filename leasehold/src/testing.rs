//! Tools for tests: raw operations, a look into a store, counters. Feature `test-util`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::model::{ClientId, HoldId, Name, Token, Ttl, Wire};
use crate::op::state::Value;
use crate::op::{Operation, SCRIPTS, mutex, plain, renew};
use crate::store::memory::{Memory, MemoryStore};
use crate::store::{Flight, Outcome, Store};

/// One raw operation, with everything that a client otherwise decides.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are the operation's arguments")]
#[expect(
    clippy::exhaustive_enums,
    reason = "tests match and make every variant"
)]
pub enum Call {
    /// Reach a hold count.
    Acquire {
        name: String,
        hold: HoldId,
        count: u64,
        ttl: Duration,
    },
    /// Reach a hold count with a fencing token.
    AcquireFenced {
        name: String,
        hold: HoldId,
        count: u64,
        ttl: Duration,
    },
    /// Leave a hold count; 0 frees.
    Release {
        name: String,
        hold: HoldId,
        leave: u64,
        ttl: Duration,
    },
    /// Renew many; without a TTL, only look.
    Renew(Vec<(String, HoldId, Option<Duration>)>),
    /// Break the lock.
    ForceUnlock { name: String },
    /// Look at the lock.
    Inspect { name: String },
    /// Take a lock of the plain format.
    PlainAcquire {
        name: String,
        hold: HoldId,
        ttl: Duration,
        fenced: bool,
    },
    /// Free a lock of the plain format.
    PlainRelease { name: String, hold: HoldId },
    /// Renew many of the plain format; without a TTL, only look.
    PlainRenew(Vec<(String, HoldId, Option<Duration>)>),
    /// Break a lock of the plain format.
    PlainForceUnlock { name: String },
    /// Look at a lock of the plain format.
    PlainInspect { name: String },
}

/// A reply with its times apart, so that the rest can be compared exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The reply without its times, or the kind of error.
    pub text: String,
    /// The time in the reply, if there was one.
    pub time: Option<Duration>,
    /// The fencing token in the reply, if there was one.
    pub token: Option<Token>,
}

/// Runs one raw operation on the client's store.
///
/// # Errors
///
/// Whatever the operation fails with, but for a key of another type, which is a reply.
pub async fn call(client: &Client, call: &Call) -> Result<Reply> {
    match call.clone() {
        Call::Acquire {
            name,
            hold,
            count,
            ttl,
        } => acquire(client, &name, hold, (count, ttl), false).await,
        Call::AcquireFenced {
            name,
            hold,
            count,
            ttl,
        } => acquire(client, &name, hold, (count, ttl), true).await,
        Call::Release {
            name,
            hold,
            leave,
            ttl,
        } => {
            let (name, ttl) = (Name::new(&name)?, Ttl::fixed(ttl)?);
            let op = mutex::Release {
                name,
                hold,
                leave,
                ttl,
            };
            run(client, &op, said).await
        }
        Call::Renew(holds) => run(client, &renew::Batch(renewals(holds)?), said).await,
        Call::ForceUnlock { name } => {
            let name = Name::new(&name)?;
            run(client, &mutex::ForceUnlock { name }, said).await
        }
        Call::Inspect { name } => {
            let name = Name::new(&name)?;
            let read = |seen: &mutex::Inspected| Reply {
                time: seen.remaining(),
                ..said(&seen.fields)
            };
            run(client, &mutex::Inspect { name }, read).await
        }
        plain => call_plain(client, plain).await,
    }
}

async fn call_plain(client: &Client, call: Call) -> Result<Reply> {
    match call {
        Call::PlainAcquire {
            name,
            hold,
            ttl,
            fenced,
        } => {
            let (name, ttl) = (Name::new(&name)?, Ttl::fixed(ttl)?);
            let op = plain::Acquire {
                token_key: fenced.then(|| name.token_key()),
                name,
                hold,
                ttl,
            };
            run(client, &op, acquired).await
        }
        Call::PlainRelease { name, hold } => {
            let name = Name::new(&name)?;
            run(client, &plain::Release { name, hold }, said).await
        }
        Call::PlainRenew(holds) => run(client, &plain::Batch(renewals(holds)?), said).await,
        Call::PlainForceUnlock { name } => {
            let name = Name::new(&name)?;
            run(client, &plain::ForceUnlock { name }, said).await
        }
        Call::PlainInspect { name } => {
            let name = Name::new(&name)?;
            let read = |seen: &plain::Inspected| Reply {
                time: seen.remaining(),
                ..said(&seen.holder)
            };
            run(client, &plain::Inspect { name }, read).await
        }
        _ => Err(Error::config("this is no operation of the plain format")),
    }
}

async fn acquire(
    client: &Client,
    name: &str,
    hold: HoldId,
    (count, ttl): (u64, Duration),
    fenced: bool,
) -> Result<Reply> {
    let (name, ttl) = (Name::new(name)?, Ttl::fixed(ttl)?);
    let op = mutex::Acquire {
        token_key: fenced.then(|| name.token_key()),
        name,
        hold,
        count,
        ttl,
    };
    run(client, &op, acquired).await
}

fn renewals(holds: Vec<(String, HoldId, Option<Duration>)>) -> Result<Vec<renew::Renewal>> {
    let renewal = |(name, hold, ttl): (String, HoldId, Option<Duration>)| {
        let ttl = ttl.map(Ttl::fixed).transpose()?;
        let name = Name::new(&name)?;
        Ok(renew::Renewal { name, hold, ttl })
    };
    holds.into_iter().map(renewal).collect()
}

fn acquired(reply: &mutex::Acquired) -> Reply {
    let (text, time, token) = match reply {
        mutex::Acquired::Held(token) => ("Held", None, *token),
        mutex::Acquired::Busy(left) => ("Busy", *left, None),
        mutex::Acquired::Gone => ("Gone", None, None),
    };
    let text = text.to_owned();
    Reply { text, time, token }
}

fn said(reply: &impl std::fmt::Debug) -> Reply {
    Reply {
        text: format!("{reply:?}"),
        time: None,
        token: None,
    }
}

async fn run<O: Operation>(
    client: &Client,
    op: &O,
    read: impl FnOnce(&O::Reply) -> Reply,
) -> Result<Reply> {
    let core = client.core();
    match core
        .shared
        .store
        .run(op, &Flight::default(), core.call_limit())
        .await
    {
        Outcome::Done(reply) => Ok(read(&reply)),
        Outcome::Refused(Error::Protocol(_)) => Ok(Reply {
            text: "Protocol".to_owned(),
            time: None,
            token: None,
        }),
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
    }
}

/// What a client's engine has done and still has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Waiters woken by an announcement.
    pub woken_by_message: u64,
    /// Waiters woken because announcements may have been missed.
    pub woken_by_gap: u64,
    /// Waiters woken by nothing but the end of a lease.
    pub woken_by_timer: u64,
    /// Waiters that went to look, where a holder may announce nothing.
    pub woken_to_look: u64,
    /// Batches of renewals that were sent.
    pub renewal_batches: u64,
    /// Holds that are watched.
    pub watched: usize,
    /// Channels that are listened to.
    pub listening: usize,
    /// Locks that are waited for.
    pub lines: usize,
    /// Owners that hold or ask.
    pub owners: usize,
    /// Releases that nobody awaits and that are not answered.
    pub owed: usize,
}

/// Reads the counters of a client.
#[must_use]
pub fn stats(client: &Client) -> Stats {
    let core = client.core();
    let counts = &core.shared.counts;
    Stats {
        woken_by_message: counts.woken_by_message.load(Ordering::Relaxed),
        woken_by_gap: counts.woken_by_gap.load(Ordering::Relaxed),
        woken_by_timer: counts.woken_by_timer.load(Ordering::Relaxed),
        woken_to_look: counts.woken_to_look.load(Ordering::Relaxed),
        renewal_batches: counts.renewal_batches.load(Ordering::Relaxed),
        watched: core.shared.watchdog.len(),
        listening: core.shared.hub.listening(),
        lines: core.queue.len(),
        owners: core.tenures.len(),
        owed: core.debts.tally().owed,
    }
}

/// Makes every mutex of this client, clones included, one of that format, fenced or not, unless
/// its own settings say otherwise. What was set first stays.
pub fn flavour(client: &Client, wire: Wire, fenced: bool) {
    let _ = client.core().flavour.set((wire, fenced));
}

/// Puts a text under a key of a memory store, as if another program had.
///
/// # Errors
///
/// [`Error::Config`] if the client is on another store.
pub fn plant(client: &Client, key: &str, text: &str) -> Result<()> {
    memory(client)?.with(|state, _| state.put(key, Value::Text(text.to_owned())));
    Ok(())
}

/// Removes a key of a memory store, as an operator would. Whether there was one.
///
/// # Errors
///
/// [`Error::Config`] if the client is on another store.
pub fn delete(client: &Client, key: &str) -> Result<bool> {
    Ok(memory(client)?.with(|state, _| state.remove(key)))
}

/// How many clients' records a memory store has.
///
/// # Errors
///
/// [`Error::Config`] if the client is on another store.
pub fn records(client: &Client) -> Result<usize> {
    let is_record = |key: &&str| ClientId::is_record(key);
    memory(client).map(|memory| memory.with(|state, _| state.names().filter(is_record).count()))
}

/// Every key of a memory store, sorted.
///
/// # Errors
///
/// [`Error::Config`] if the client is on another store.
pub fn keys(client: &Client) -> Result<Vec<String>> {
    Ok(memory(client)?.with(|state, _| state.names().map(str::to_owned).collect()))
}

/// Lets every key of a memory store be older by `time`.
///
/// # Errors
///
/// [`Error::Config`] if the client is on another store.
pub fn age(client: &Client, time: Duration) -> Result<()> {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    memory(client)?.with(|state, _| state.age(millis));
    Ok(())
}

/// Lets a client on a memory store wait for its subscriptions, as a slow server would, until
/// this is called with `false`.
///
/// # Errors
///
/// [`Error::Config`] if the client is on another store.
pub fn hold_back_subscriptions(client: &Client, hold: bool) -> Result<()> {
    memory_store(client)?.hold_back(hold);
    Ok(())
}

/// Lets `event` happen between the next operation of a client on a memory store and its reply,
/// as it may on the way from a server.
///
/// # Errors
///
/// [`Error::Config`] if the client is on another store.
pub fn meanwhile(client: &Client, event: impl FnOnce() + Send + 'static) -> Result<()> {
    memory_store(client)?.meanwhile(Box::new(event));
    Ok(())
}

/// Breaks a lock of a memory store, and announces that. Whether somebody held it.
///
/// # Errors
///
/// [`Error::Config`] if the client is on another store; as the operation fails.
pub fn free(client: &Client, name: &str) -> Result<bool> {
    let name = Name::new(name)?;
    memory(client)?.with(|state, now| match state.value(name.as_str()) {
        Some(Value::Text(_)) => plain::ForceUnlock { name }.apply(state, now),
        Some(Value::Hash(_)) | None => mutex::ForceUnlock { name }.apply(state, now),
    })
}

/// Every script with its name, for tests that look at them.
pub fn scripts() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCRIPTS.iter().map(|script| (script.name, script.text))
}

fn memory(client: &Client) -> Result<&Memory> {
    memory_store(client).map(MemoryStore::memory)
}

fn memory_store(client: &Client) -> Result<&MemoryStore> {
    match &client.core().shared.store {
        Store::Memory(store) => Ok(store),
        Store::Local(_) | Store::Redis(_) => Err(Error::config("this is no memory store")),
    }
}
