//! What is measured: ways to take a lock and give it back once.

use leasehold::{Client, Mutex};
use redis::aio::MultiplexedConnection;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The name that is locked. Nobody else uses it.
const NAME: &str = "leasehold-bench";
const CHANNEL: &str = "redisson_lock__channel:{leasehold-bench}";

/// One way to do a pair: acquire and release.
#[derive(Debug)]
pub(crate) enum Contender {
    /// Two EVALSHA of the library's scripts on one connection, and nothing else.
    Raw(Raw),
    /// `try_lock` and `release` of the library.
    Mutex(Mutex),
}

impl Contender {
    pub(crate) fn mutex(client: &Client) -> Self {
        Self::Mutex(client.mutex(NAME))
    }

    /// Does one pair.
    pub(crate) async fn pair(&mut self) -> Result<(), Failure> {
        match self {
            Self::Raw(raw) => raw.pair().await,
            Self::Mutex(mutex) => {
                let guard = mutex.try_lock().await?.ok_or("somebody holds the lock")?;
                Ok(guard.release().await?)
            }
        }
    }
}

/// The bare commands, by the client crate that the library uses.
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    serial: u64,
}

impl Raw {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let client = redis::Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut sha = async |name: &str| -> Result<String, Failure> {
            let mut scripts = leasehold::testing::scripts();
            let (_, text) = scripts
                .find(|(found, _)| *found == name)
                .ok_or_else(|| format!("the library has no script {name}"))?;
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(text);
            Ok(load.query_async(&mut connection).await?)
        };
        let (acquire, release) = (sha("mutex_acquire").await?, sha("mutex_release").await?);
        Ok(Self {
            connection,
            acquire,
            release,
            serial: 0,
        })
    }

    async fn pair(&mut self) -> Result<(), Failure> {
        self.serial += 1;
        let hold = format!("00000000-0000-4000-8000-000000000000:{}", self.serial);
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&self.acquire).arg(1).arg(NAME);
        acquire.arg(&hold).arg(1).arg(30_000);
        let held: Option<i64> = acquire.query_async(&mut self.connection).await?;
        if held.is_some() {
            return Err("somebody holds the lock".into());
        }
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.release).arg(1).arg(NAME);
        release
            .arg(&hold)
            .arg(0)
            .arg(30_000)
            .arg(CHANNEL)
            .arg("PUBLISH");
        let freed: i64 = release.query_async(&mut self.connection).await?;
        if freed != 1 {
            return Err(format!("the release replied {freed}").into());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw").finish_non_exhaustive()
    }
}
