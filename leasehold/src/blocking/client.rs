//! The client, for threads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Mutex;
use super::driver::{Driver, Thread};
use crate::client::CloseReport;
use crate::error::Result;
use crate::lock::Status;
use crate::store::memory::Memory;

/// A connection to one lock store, for threads. Cheap to clone; every clone is the same client.
///
/// It owns one thread, named `leasehold`, on which renewals, connections and queued releases run.
/// Calls run on their callers' threads, any number at a time.
///
/// # Closing
///
/// [`close`](Self::close) sends what is queued and waits for the thread. Dropping the last client,
/// handle and guard does the same without waiting: at the end of `main` the process may be gone
/// before the last releases are sent, and their locks stay until their TTL.
///
/// # Panics
///
/// Calls that talk to the store panic in asynchronous code. Dropping a client never does.
///
/// # Examples
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use leasehold::blocking::Client;
///
/// let client = Client::memory(); // or Client::connect("redis://127.0.0.1/")?
/// let guard = client.mutex("orders:42").lock()?;
/// // one at a time in here
/// guard.release()?;
/// client.close();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    driver: Arc<Driver>,
}

impl Client {
    /// Connects to the store that `url` names; see [`connect`](crate::Client::connect).
    ///
    /// # Errors
    ///
    /// As the asynchronous one; also [`Unavailable`](crate::Error::Unavailable) if the system has
    /// no thread left.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url)
    }

    /// A client on a store of its own in this process, for tests and examples.
    ///
    /// # Panics
    ///
    /// If the system has no thread left.
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
        Mutex::new(self.driver.client.mutex(name), &self.driver)
    }

    /// The directory of a local store; none for the others.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.driver.client.directory()
    }

    /// What is held under the names that match `pattern`; see [`list`](crate::Client::list).
    ///
    /// # Errors
    ///
    /// As the asynchronous one.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn list(&self, pattern: &str) -> Result<Vec<Status>> {
        self.driver.call(self.driver.client.list(pattern))
    }

    /// Closes the client and waits for its thread: waiters end with
    /// [`Closed`](crate::Error::Closed), queued releases are sent.
    ///
    /// Holds that a guard still has are not released; see [`close`](crate::Client::close). From
    /// then on every call says [`Closed`](crate::Error::Closed), on every clone. A second close
    /// gives the report of the first.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn close(self) -> CloseReport {
        self.driver.close(false)
    }

    /// As [`close`](Self::close), but first tells the holders of all outstanding holds that these
    /// are lost, and then gives them back.
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn close_and_release(self) -> CloseReport {
        self.driver.close(true)
    }
}

/// Settings of a [`Client`]; see [`Client::builder`].
#[derive(Clone, Debug, Default)]
pub struct ClientBuilder {
    inner: crate::ClientBuilder,
}

impl ClientBuilder {
    /// How long name look-up, connect and log-in may take together; see
    /// [`connect_timeout`](crate::ClientBuilder::connect_timeout).
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        let inner = self.inner.connect_timeout(timeout);
        Self { inner }
    }

    /// How long one command may stay without an answer; see
    /// [`response_timeout`](crate::ClientBuilder::response_timeout).
    #[must_use]
    pub fn response_timeout(self, timeout: Duration) -> Self {
        let inner = self.inner.response_timeout(timeout);
        Self { inner }
    }

    /// How long a call that does not wait for a lock may take; see
    /// [`call_timeout`](crate::ClientBuilder::call_timeout).
    #[must_use]
    pub fn call_timeout(self, timeout: Duration) -> Self {
        let inner = self.inner.call_timeout(timeout);
        Self { inner }
    }

    /// Connects to the store that `url` names; see [`Client::connect`].
    ///
    /// # Errors
    ///
    /// As [`Client::connect`].
    ///
    /// # Panics
    ///
    /// In asynchronous code.
    #[track_caller]
    pub fn connect(self, url: &str) -> Result<Client> {
        let thread = Thread::start()?;
        let client = thread.handle().block_on(self.inner.connect(url))?;
        let driver = thread.drive(client);
        Ok(Client { driver })
    }

    /// A client on a store in this process; clients on the same [`Memory`] contend, asynchronous
    /// ones, too.
    ///
    /// # Panics
    ///
    /// If the system has no thread left.
    #[must_use]
    #[track_caller]
    pub fn memory(self, memory: &Memory) -> Client {
        let thread = Thread::start().expect("the client's thread starts");
        let client = {
            let _inside = thread.handle().enter();
            self.inner.memory(memory)
        };
        let driver = thread.drive(client);
        Client { driver }
    }
}
