//! Where operations run: memory, this machine, or a server.
//!
//! A store has two verbs. [`Store::run`] runs one operation and says what came of it, never more
//! than it knows. [`Store::listen`] asks for the announcements of a channel; they arrive at the
//! [`Events`] that the store was made with.

pub(crate) mod clock;
mod introduction;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod observe;
pub(crate) mod redis;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::model::{HoldId, LeaseTerm, Moment, Name};
use crate::op::Operation;

pub(crate) use clock::Clock;
pub(crate) use introduction::Introduction;

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// It ran, and this is the reply.
    Done(T),
    /// It did not run, and will not.
    Refused(Error),
    /// It may have run, may run yet, or may never run.
    Unknown(Error),
}

impl<T> Outcome<T> {
    /// The same outcome with another reply.
    pub(crate) fn map<U>(self, read: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(reply) => Outcome::Done(read(reply)),
            Self::Refused(error) => Outcome::Refused(error),
            Self::Unknown(error) => Outcome::Unknown(error),
        }
    }
}

/// What a store tells without being asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// From now on no announcement of the channel is missed.
    Live(&'a str),
    /// Something was announced on the channel.
    Message(&'a str),
    /// Announcements of the channel may have been missed.
    Gap(&'a str),
    /// The store was replaced or reconnected: it may have forgotten, so holds are in doubt.
    Reset,
}

/// Who hears what a store tells. Called from the store's tasks: it must not block.
pub(crate) trait Events: Send + Sync + 'static {
    fn heard(&self, event: Event<'_>);
}

/// Which requests of one hold are still without an answer.
///
/// A request that was sent over one connection may be run after requests that were sent later
/// over another. So the oldest line with a request unanswered is kept: a release that was
/// answered on that same line came after it, one on another line may have come before it.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    unanswered: AtomicU64,
}

impl Flight {
    /// A request is about to leave on `line` (1 or more).
    pub(crate) fn sent(&self, line: u64) {
        let _ = self
            .unanswered
            .compare_exchange(0, line, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The requests sent so far on `line` have been answered, or never left.
    pub(crate) fn answered(&self, line: u64) {
        let _ = self
            .unanswered
            .compare_exchange(line, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The line with a request unanswered, if there is one.
    pub(crate) fn unanswered(&self) -> Option<u64> {
        Some(self.unanswered.load(Ordering::SeqCst)).filter(|&line| line > 0)
    }
}

/// A back-end. An enum, so that no type parameter reaches the user.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(memory::MemoryStore),
    Local(local::LocalStore),
    Redis(redis::RedisStore),
}

impl Store {
    /// Runs one operation, waiting no longer than `until`.
    ///
    /// Dropping the future leaves the operation unsent, or run: `flight` tells which is possible.
    pub(crate) async fn run<O: Operation>(
        &self,
        op: &O,
        flight: &Flight,
        until: Moment,
    ) -> Outcome<O::Reply> {
        match self {
            Self::Memory(store) => store.run(op).await,
            Self::Local(store) => store.run(op, flight, until).await,
            Self::Redis(store) => store.run(op, flight, until).await,
        }
    }

    /// Lets the store know who the client is, where its handshake did not. Best effort.
    pub(crate) async fn introduce(&self, introduction: &Introduction) {
        match self {
            Self::Memory(store) => store.introduce(introduction),
            Self::Local(store) => store.introduce(introduction).await,
            Self::Redis(_) => {}
        }
    }

    /// Asks for the announcements of a channel, until [`Store::unlisten`].
    pub(crate) fn listen(&self, name: &Name, channel: &str) {
        match self {
            Self::Memory(store) => store.listen(channel),
            Self::Local(store) => store.listen(name, channel),
            Self::Redis(store) => store.listen(channel),
        }
    }

    pub(crate) fn unlisten(&self, name: &Name, channel: &str) {
        match self {
            Self::Memory(store) => store.unlisten(channel),
            Self::Local(store) => store.unlisten(name, channel),
            Self::Redis(store) => store.unlisten(channel),
        }
    }

    /// What kind of store it is, in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Local(_) => "local",
            Self::Redis(_) => "redis",
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        match self {
            Self::Memory(store) => store.clock(),
            Self::Local(_) | Self::Redis(_) => Clock::Boot,
        }
    }

    /// Keys of equal slot may go in one operation.
    pub(crate) fn slot(&self, name: &Name) -> u64 {
        match self {
            Self::Memory(_) | Self::Redis(_) => 0,
            Self::Local(store) => store.slot(name),
        }
    }

    /// Names of keys that may be locks, those that match the glob `pattern`.
    pub(crate) async fn names(&self, pattern: &str, until: Moment) -> Result<Vec<String>> {
        match self {
            Self::Memory(store) => Ok(store.names(pattern)),
            Self::Local(store) => store.names(pattern).await,
            Self::Redis(store) => store.names(pattern, until).await,
        }
    }

    /// Cuts off what an old line may still deliver, as far as the server lets us.
    pub(crate) async fn cut(&self, line: u64) {
        match self {
            Self::Memory(_) | Self::Local(_) => {}
            Self::Redis(store) => store.cut(line).await,
        }
    }

    /// Ties a hold that is about to be taken to the life of this process, where that can be done.
    pub(crate) fn bind(&self, hold: &HoldId, term: LeaseTerm) -> Result<Option<Binding>> {
        match self {
            Self::Memory(_) | Self::Redis(_) => Ok(None),
            Self::Local(store) => store.bind(hold, term).map(|file| Some(Arc::new(file))),
        }
    }
}

/// What ties a hold to the life of a process: on this machine, a file with an OS lock.
pub(crate) type Binding = Arc<local::HoldFile>;

/// Whether `text` matches `pattern`, in which `*` stands for any text and `?` for one character.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    wildmatch::WildMatch::new(pattern).matches(text)
}
