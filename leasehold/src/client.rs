//! The client: wires a store to the engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::hub::Hub;
use crate::engine::{Core, Limits};
use crate::error::{Error, Result};
use crate::lock::{Mutex, Status};
use crate::model::Name;
use crate::model::lease::CLIENT_CLOSED;
use crate::op::mutex::Inspect;
use crate::store::local::LocalStore;
use crate::store::memory::{Memory, MemoryStore};
use crate::store::redis::{RedisStore, Settings};
use crate::store::{Events, Store};

/// A connection to one lock store. Cheap to clone; every clone is the same client.
///
/// # Runtime
///
/// A client belongs to the tokio runtime that made it: its watchdog and its connections live
/// there. When that runtime ends, every call fails with [`Error::Closed`]. So do not keep one
/// client in a `static` for several `#[tokio::test]`s; make one in each.
///
/// # Closing
///
/// A dropped guard queues its release. Call [`Client::close`] before the end of `main`, or the
/// last releases are not sent and their locks stay until their TTL.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// use leasehold::Client;
///
/// let client = Client::memory(); // or Client::connect("redis://127.0.0.1/").await?
/// let guard = client.mutex("orders:42").lock().await?;
/// // one at a time in here
/// guard.release().await?;
/// client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
    directory: Option<PathBuf>,
}

impl Client {
    /// Connects to the store that `url` names.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | a Redis or Valkey server |
    /// | `local:` or `local:/path` | this machine only, in that directory |
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a URL that cannot be read, [`Error::Refused`] for a wrong password
    /// or a missing right, [`Error::Unavailable`] when the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes whatever was opened.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A client on a store of its own in this process, for tests and examples.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn memory() -> Self {
        Self::builder().memory(&Memory::new())
    }

    /// Settings for a client that is not the default one.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The reentrant lock of this name. Nothing is sent before it is used.
    #[must_use]
    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex::new(Arc::clone(&self.core), name)
    }

    /// The directory of a local store; none for the others.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// What is held under the names that match `pattern`, in which `*` stands for any text and
    /// `?` for one character. In the order of the names.
    ///
    /// On a server this walks over all keys; it is meant for operators, not for programs.
    ///
    /// # Errors
    ///
    /// As every call: [`Error::Unavailable`], [`Error::Timeout`], [`Error::Refused`].
    pub async fn list(&self, pattern: &str) -> Result<Vec<Status>> {
        let shared = &self.core.shared;
        let names = shared.store.names(pattern, self.core.call_limit());
        let mut names = shared.life.while_open(names).await?;
        names.sort();
        names.dedup();
        let mut found = Vec::new();
        for text in names {
            let Ok(name) = Name::new(&text) else { continue };
            // Keys of other kinds and names that were freed meanwhile are passed over.
            match self.core.ask(&Inspect { name }).await {
                Ok(seen) => found.extend(Status::read(&text, &seen).unwrap_or_default()),
                Err(Error::Protocol(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(found)
    }

    /// Closes the client: waiters end with [`Error::Closed`], queued releases are sent.
    ///
    /// Holds that a guard still has are not released, since their work may go on: they are no
    /// longer renewed, and end with their leases. Drop or release the guards first.
    /// [`Client::close_and_release`] gives them back as well.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the client closed and the releases under way.
    pub async fn close(self) -> CloseReport {
        let shared = &self.core.shared;
        shared.life.end("it was closed");
        let outstanding = shared.watchdog.holds();
        for hold in &outstanding {
            shared.watchdog.forget(hold);
            // On this machine, too, it now lives by its TTL alone.
            hold.claim.settle();
        }
        let _ = shared
            .clock
            .limit(self.core.call_limit(), self.core.debts.paid())
            .await;
        let tally = self.core.debts.tally();
        CloseReport {
            released: tally.released,
            unreleased: tally.owed + tally.asking + tally.abandoned,
            outstanding: outstanding.len(),
        }
    }

    /// As [`Client::close`], but first tells the holders of all outstanding holds that these are
    /// lost, and then gives them back.
    ///
    /// Work that does not stop when its lease is lost goes on without the lock.
    pub async fn close_and_release(self) -> CloseReport {
        let shared = &self.core.shared;
        shared.life.end("it was closed");
        for hold in shared.watchdog.holds() {
            hold.lose(CLIENT_CLOSED);
            shared.watchdog.forget(&hold);
            hold.detach();
            self.core.debts.leave(&hold);
        }
        self.close().await
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

/// What [`Client::close`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Releases that nobody awaited and that the store has answered, in the client's whole life.
    pub released: usize,
    /// Releases that the store has not answered: their locks may stay until their TTL.
    pub unreleased: usize,
    /// Holds that guards still had; they end with their leases.
    pub outstanding: usize,
}

/// Settings of a [`Client`]; see [`Client::builder`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    connect_timeout: Duration,
    response_timeout: Duration,
    call_timeout: Duration,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
        }
    }
}

impl ClientBuilder {
    /// How long name look-up, connect and log-in may take together. 3 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long one command may stay without an answer. 2 s unless set.
    ///
    /// Two such silences in a row, and the connection is replaced.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// How long a call that does not wait for a lock may take, repeats included. 5 s unless set.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Connects to the store that `url` names; see [`Client::connect`].
    ///
    /// # Errors
    ///
    /// As [`Client::connect`]; also [`Error::Config`] for a timeout of zero.
    pub async fn connect(self, url: &str) -> Result<Client> {
        self.check()?;
        let hub = Arc::new(Hub::new());
        let events = Arc::clone(&hub) as Arc<dyn Events>;
        match url.split_once(':') {
            Some(("local", path)) => {
                let path = Some(path.strip_prefix("//").unwrap_or(path)).filter(|p| !p.is_empty());
                let store = LocalStore::open(path.map(Path::new), events)?;
                let directory = Some(store.directory().to_owned());
                Ok(self.start(Store::Local(store), hub, directory))
            }
            Some(("redis", _)) => {
                let settings = Settings {
                    connect_timeout: self.connect_timeout,
                    response_timeout: self.response_timeout,
                };
                let store = RedisStore::connect(url, settings, events).await?;
                Ok(self.start(Store::Redis(store), hub, None))
            }
            _ => Err(Error::config("the URL must begin with redis: or local:")),
        }
    }

    /// A client on a store in this process; clients on the same [`Memory`] contend.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn memory(self, memory: &Memory) -> Client {
        let hub = Arc::new(Hub::new());
        let store = MemoryStore::new(memory, Arc::clone(&hub) as Arc<dyn Events>);
        self.start(Store::Memory(store), hub, None)
    }

    #[track_caller]
    fn start(self, store: Store, hub: Arc<Hub>, directory: Option<PathBuf>) -> Client {
        Client {
            core: Core::start(
                store,
                hub,
                Limits {
                    call: self.call_timeout,
                },
            ),
            directory,
        }
    }

    fn check(&self) -> Result<()> {
        let hour = Duration::from_secs(3600);
        for timeout in [
            self.connect_timeout,
            self.response_timeout,
            self.call_timeout,
        ] {
            if timeout.is_zero() || timeout > hour {
                return Err(Error::config(
                    "a timeout must be more than zero and at most an hour",
                ));
            }
        }
        Ok(())
    }
}
