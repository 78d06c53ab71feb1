//! The client, for threads.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Mutex;
use super::driver::{Driver, Thread};
use crate::client::CloseReport;
use crate::error::Result;
use crate::lock::Status;
use crate::model::Owner;
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

    /// A new owner: whoever shows it may enter again what it holds; see
    /// [`owner`](crate::Client::owner).
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.driver.client.owner()
    }

    /// The owner that the calling thread is: the same at every call on this thread and client.
    ///
    /// With `mutex.owner(&client.thread_owner())` a thread enters again what it holds, as with
    /// Redisson. Nothing uses it unless it is shown.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> leasehold::Result<()> {
    /// let client = leasehold::blocking::Client::memory();
    /// let mutex = client.mutex("orders:42").owner(&client.thread_owner());
    /// let outer = mutex.lock()?;
    /// let inner = mutex.lock()?;
    /// assert_eq!(mutex.hold_count(&client.thread_owner())?, 2);
    /// inner.release()?;
    /// outer.release()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn thread_owner(&self) -> Owner {
        let client = &self.driver.client;
        OWNERS.with_borrow_mut(|owners| {
            if let Some(owner) = owners.iter().find(|owner| owner.belongs_to(client.id())) {
                return owner.clone();
            }
            let owner = client.owner();
            owners.push(owner.clone());
            owner
        })
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

thread_local! {
    /// Who this thread is, for each client that asked.
    static OWNERS: RefCell<Vec<Owner>> = const { RefCell::new(Vec::new()) };
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

    /// What stands in front of the name of every lock; see
    /// [`prefix`](crate::ClientBuilder::prefix).
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        let inner = self.inner.prefix(prefix);
        Self { inner }
    }

    /// Says what this client is for; see [`label`](crate::ClientBuilder::label).
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        let inner = self.inner.label(label);
        Self { inner }
    }

    /// Trusts servers by these authorities and no others; see
    /// [`ca_certificate`](crate::ClientBuilder::ca_certificate).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn ca_certificate(self, pem: impl Into<Vec<u8>>) -> Self {
        let inner = self.inner.ca_certificate(pem);
        Self { inner }
    }

    /// Shows this certificate to the server; see
    /// [`client_certificate`](crate::ClientBuilder::client_certificate).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn client_certificate(
        self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        let inner = self.inner.client_certificate(certificate_pem, key_pem);
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
