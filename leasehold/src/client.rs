//! The client: wires a store to the engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::hub::Hub;
use crate::engine::{Core, Identity, Limits, Names, presence};
use crate::error::{Error, Result};
use crate::lock::{Mutex, Status};
use crate::model::lease::CLIENT_CLOSED;
use crate::model::{ClientId, Name, Owner};
use crate::op::mutex::Inspect;
use crate::store::local::LocalStore;
use crate::store::memory::{Memory, MemoryStore};
use crate::store::redis::{RedisStore, Settings, Trust};
use crate::store::{Events, Introduction, Store, glob};

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
    /// | `rediss://[user:password@]host[:port][/database]` | the same under TLS; the server must be who it is called |
    /// | `unix:///path[?db=1&user=name&pass=word]` | a server on this machine, by its socket |
    /// | `local:` or `local:/path` | this machine only, in that directory |
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a URL that cannot be read, [`Error::Refused`] for a wrong password,
    /// a missing right or a bad certificate, [`Error::Unavailable`] when the server cannot be
    /// reached.
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

    /// A new owner: whoever shows it may enter again what it holds. See [`Mutex::owner`].
    ///
    /// Nothing is sent.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.core.fresh_owner()
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn id(&self) -> ClientId {
        self.core.id
    }

    /// The directory of a local store; none for the others.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// What is held under the names that match `pattern`, in which `*` stands for any text and
    /// `?` for one character. In the order of the names.
    ///
    /// With a [prefix](ClientBuilder::prefix), only names that have it, and shown without it. Locks
    /// of the [plain format](crate::Wire::Plain) are left out: nothing tells them from other texts.
    ///
    /// On a server this walks over all keys; it is meant for operators, not for programs.
    ///
    /// # Errors
    ///
    /// As every call: [`Error::Unavailable`], [`Error::Timeout`], [`Error::Refused`].
    pub async fn list(&self, pattern: &str) -> Result<Vec<Status>> {
        let shared = &self.core.shared;
        let prefix = self.core.prefix()?;
        let wide = format!("{prefix}{pattern}");
        let keys = shared.store.names(&wide, self.core.call_limit());
        let keys = shared.life.while_open(keys).await?;
        // A star in the prefix is no wildcard, but the store took it for one.
        let named = |key: &String| key.strip_prefix(prefix).map(str::to_owned);
        let mut names: Vec<String> = keys
            .iter()
            .filter(|key| !ClientId::is_record(key))
            .filter_map(named)
            .filter(|name| glob(pattern, name))
            .collect();
        names.sort();
        names.dedup();
        let mut found = Vec::new();
        for text in names {
            let Ok(name) = self.core.name(&text) else {
                continue;
            };
            // Keys of other kinds and names that were freed meanwhile are passed over.
            match self.core.ask(&Inspect { name }).await {
                Ok(seen) => found.extend(Status::read(&text, &seen).unwrap_or_default()),
                Err(Error::Protocol(_)) => {}
                Err(other) => return Err(other),
            }
        }
        for status in &mut found {
            status.holder.identify(&self.core).await?;
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
        let until = self.core.call_limit();
        let outstanding = shared.watchdog.holds();
        for hold in &outstanding {
            shared.presence.leaves(hold.end());
            shared.watchdog.forget(hold);
            // On this machine, too, it now lives by its TTL alone.
            hold.claim.settle();
        }
        let _ = shared.clock.limit(until, self.core.debts.paid()).await;
        self.core.withdraw(until).await;
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

/// How long a label may be, in bytes.
const LONGEST_LABEL: usize = 100;

/// Settings of a [`Client`]; see [`Client::builder`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    connect_timeout: Duration,
    response_timeout: Duration,
    call_timeout: Duration,
    prefix: String,
    label: String,
    trust: Trust,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
            prefix: String::new(),
            label: String::new(),
            trust: Trust::default(),
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

    /// Puts `prefix` in front of the name of every lock, as in `app:`.
    ///
    /// Everything else, such as the channel of a lock, is derived from the whole name. A client
    /// without a prefix gets the same lock by the whole name. [`Client::list`] and [`Status`] show
    /// names without it.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Client, Memory};
    ///
    /// let memory = Memory::new();
    /// let shop = Client::builder().prefix("shop:").memory(&memory);
    /// let all = Client::builder().memory(&memory);
    /// let guard = shop.mutex("orders").lock().await?;
    /// assert!(all.mutex("shop:orders").is_locked().await?);
    /// assert_eq!(shop.list("*").await?[0].name, "orders");
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Says what this client is for, in a few words for people: they see it with its locks, and,
    /// with other characters than a server takes replaced, in the server's list of clients.
    ///
    /// At most 100 bytes, without control characters. No secret: everybody at the store reads it.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Trusts servers whose certificate is signed by one of these authorities, in PEM, and no
    /// others. Unless set, a server is trusted as far as this system does.
    ///
    /// For `rediss:` URLs only: with another server's URL, connecting fails.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.trust.set_authority(pem.into());
        self
    }

    /// Shows this certificate (or chain, the client's own first) to a server that asks for one,
    /// and proves it by the private key. Both in PEM. The key is not shown by `Debug`.
    ///
    /// For `rediss:` URLs only: with another server's URL, connecting fails.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::read;
    ///
    /// let client = leasehold::Client::builder()
    ///     .ca_certificate(read("ca.pem")?)
    ///     .client_certificate(read("client.pem")?, read("client.key")?)
    ///     .connect("rediss://redis.example:6380/")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.trust
            .set_identity(certificate_pem.into(), key_pem.into());
        self
    }

    /// Connects to the store that `url` names; see [`Client::connect`].
    ///
    /// # Errors
    ///
    /// As [`Client::connect`]; also [`Error::Config`] for a timeout of zero, a label that is too
    /// long, a prefix whose braces break the slots of names, and certificates that cannot be read
    /// or that the URL has no use for.
    pub async fn connect(self, url: &str) -> Result<Client> {
        self.check()?;
        let (hub, id) = (Arc::new(Hub::new()), ClientId::random());
        let introduction = Arc::new(presence::introduction(id, &self.label));
        let events = Arc::clone(&hub) as Arc<dyn Events>;
        let (store, directory) = match url.split_once(':') {
            Some(("local", _)) if self.trust.is_set() => {
                return Err(Error::config(
                    "certificates are set, but no server is named",
                ));
            }
            Some(("local", path)) => {
                let path = Some(path.strip_prefix("//").unwrap_or(path)).filter(|p| !p.is_empty());
                let store = LocalStore::open(path.map(Path::new), events)?;
                let directory = store.directory().to_owned();
                (Store::Local(store), Some(directory))
            }
            Some(("redis" | "rediss" | "unix", _)) => {
                let settings = Settings {
                    connect_timeout: self.connect_timeout,
                    response_timeout: self.response_timeout,
                    trust: self.trust.clone(),
                    name: self.connection_name(),
                    introduction: Arc::clone(&introduction),
                };
                let store = RedisStore::connect(url, settings, events).await?;
                (Store::Redis(store), None)
            }
            _ => {
                return Err(Error::config(
                    "the URL must begin with redis:, rediss:, unix: or local:",
                ));
            }
        };
        store.introduce(&introduction).await;
        Ok(self.start(store, hub, id, introduction, directory))
    }

    /// A client on a store in this process; clients on the same [`Memory`] contend.
    ///
    /// A setting that cannot work is reported as [`Error::Config`] by the first call.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn memory(self, memory: &Memory) -> Client {
        let (hub, id) = (Arc::new(Hub::new()), ClientId::random());
        let introduction = Arc::new(presence::introduction(id, &self.label));
        let store = MemoryStore::new(memory, Arc::clone(&hub) as Arc<dyn Events>);
        store.introduce(&introduction);
        self.start(Store::Memory(store), hub, id, introduction, None)
    }

    #[track_caller]
    fn start(
        self,
        store: Store,
        hub: Arc<Hub>,
        id: ClientId,
        introduction: Arc<Introduction>,
        directory: Option<PathBuf>,
    ) -> Client {
        let limits = Limits {
            call: self.call_timeout,
        };
        let names = Names {
            fault: self.check().err(),
            prefix: self.prefix,
        };
        let identity = Identity {
            id,
            introduction,
            names,
        };
        Client {
            core: Core::start(store, hub, limits, identity),
            directory,
        }
    }

    /// What operators see in a server's list of clients. A server takes no spaces there, nor what
    /// is not ASCII.
    fn connection_name(&self) -> String {
        if self.label.is_empty() {
            return "leasehold".to_owned();
        }
        let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        let label: String = self.label.chars().map(plain).collect();
        format!("leasehold:{label}")
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
        if self.label.len() > LONGEST_LABEL || self.label.contains(char::is_control) {
            return Err(Error::config(format!(
                "a label has at most {LONGEST_LABEL} bytes and no control characters"
            )));
        }
        // With a name that is good by itself.
        Name::new(&format!("{}x", self.prefix))
            .map(drop)
            .map_err(|_| Error::config("the braces of the prefix break the slots of names"))
    }
}
