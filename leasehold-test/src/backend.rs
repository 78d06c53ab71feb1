//! What a suite needs of a store.

use std::time::Duration;

use leasehold::{Client, ClientBuilder, Memory, Wire, testing};
use tempfile::TempDir;

use crate::Server;

tokio::task_local! {
    /// What the mutexes of the clients made in this task are.
    static FLAVOUR: (Wire, bool);
}

/// Runs a test whose mutexes are of this format, fenced or not.
pub async fn flavoured<T>(wire: Wire, fenced: bool, test: impl Future<Output = T>) -> T {
    FLAVOUR.scope((wire, fenced), test).await
}

/// Which store a suite runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// In this process.
    Memory,
    /// On this machine.
    Local,
    /// On a real server.
    Redis,
}

/// A store of one test, empty at first.
#[derive(Debug)]
pub enum Backend {
    /// In this process.
    Memory(Memory),
    /// A directory of its own.
    Local(TempDir),
    /// A server of its own.
    Redis(Server),
}

impl Backend {
    /// Makes one.
    ///
    /// # Panics
    ///
    /// When it cannot be set up.
    pub async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Memory => Self::Memory(Memory::new()),
            Kind::Local => Self::Local(TempDir::new().expect("a temporary directory can be made")),
            Kind::Redis => Self::Redis(Server::start().await),
        }
    }

    /// The URL for other processes; none for memory.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Local(dir) => Some(format!("local:{}", dir.path().join("locks").display())),
            Self::Redis(server) => Some(server.url()),
        }
    }

    /// A new client.
    ///
    /// # Panics
    ///
    /// When it cannot connect.
    pub async fn client(&self) -> Client {
        self.build(Client::builder()).await
    }

    /// A new client with settings of its own.
    ///
    /// # Panics
    ///
    /// When it cannot connect.
    pub async fn build(&self, builder: ClientBuilder) -> Client {
        let client = match (self, self.url()) {
            (Self::Memory(memory), _) => builder.memory(memory),
            (_, Some(url)) => builder.connect(&url).await.expect("a client connects"),
            (_, None) => panic!("a store outside this process has a URL"),
        };
        let _ = FLAVOUR.try_with(|&(wire, fenced)| testing::flavour(&client, wire, fenced));
        client
    }

    /// Two new clients.
    pub async fn clients(&self) -> (Client, Client) {
        (self.client().await, self.client().await)
    }

    /// Removes a lock behind its holder's back, as an operator would.
    ///
    /// # Panics
    ///
    /// When there is no such lock.
    pub async fn remove(&self, name: &str) {
        let removed = match self {
            Self::Memory(memory) => {
                let operator = Client::builder().memory(memory);
                testing::delete(&operator, name).expect("the client is on memory")
            }
            Self::Local(_) => {
                let operator = self.client().await;
                let broken = operator.mutex(name).force_unlock().await;
                broken.expect("a lock can be broken")
            }
            Self::Redis(server) => server.query::<u64>(&["DEL", name]).await == 1,
        };
        assert!(removed, "there is no lock {name:?} to remove");
    }

    /// Puts a value of another type under a name. Memory and servers only.
    ///
    /// # Panics
    ///
    /// On the local store, where nobody else writes.
    pub async fn plant(&self, name: &str, text: &str) {
        match self {
            Self::Memory(memory) => {
                let other = Client::builder().memory(memory);
                testing::plant(&other, name, text).expect("the client is on memory");
            }
            Self::Local(_) => panic!("nobody else writes to the local store"),
            Self::Redis(server) => server.query::<()>(&["SET", name, text]).await,
        }
    }

    /// How many clients' records there are; `client` is any on this store.
    ///
    /// # Panics
    ///
    /// When the store cannot be read.
    pub async fn records(&self, client: &Client) -> usize {
        match self {
            Self::Memory(_) => testing::records(client).expect("the client is on memory"),
            Self::Local(_) => {
                let dir = client.directory().expect("the client is on this machine");
                let files = std::fs::read_dir(dir).expect("the directory can be read");
                let names = files.map(|file| file.expect("it can be read").file_name());
                let record = |name: &std::ffi::OsString| {
                    name.to_string_lossy().starts_with("leasehold_client_")
                };
                names.filter(record).count()
            }
            Self::Redis(server) => {
                let keys: Vec<String> = server.query(&["KEYS", "leasehold:client:*"]).await;
                keys.len()
            }
        }
    }

    /// How many script calls the server has seen; none where there is no server.
    pub async fn scripts_run(&self) -> Option<u64> {
        match self {
            Self::Redis(server) => Some(server.calls("evalsha").await + server.calls("eval").await),
            Self::Memory(_) | Self::Local(_) => None,
        }
    }

    /// How long after an event others may learn of it: what a busy machine with two cores needs.
    #[must_use]
    pub fn slack(&self) -> Duration {
        Duration::from_millis(500)
    }
}
