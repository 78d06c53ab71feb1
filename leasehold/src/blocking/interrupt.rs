//! What ends a wait from another thread.

use std::sync::Arc;

use tokio::sync::watch;

use crate::error::{Error, Result};

/// A request to stop waiting, made on one thread and seen by another.
///
/// Only the calls that are given it are ended by it: [`lock_interruptibly`] and
/// [`try_lock_for_interruptibly`]. A plain [`lock`] waits on. The request is kept until
/// [`clear`](Self::clear), so one that comes before the wait, or during a plain `lock`, is not
/// lost. Clones are the same request; one may end the waits of many threads.
///
/// In asynchronous code nothing of this kind is needed: drop the future.
///
/// # Examples
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use leasehold::Error;
/// use leasehold::blocking::{Client, Interrupt};
///
/// let client = Client::memory();
/// let guard = client.mutex("orders:42").lock()?;
///
/// let interrupt = Interrupt::new();
/// let waiting = std::thread::spawn({
///     let (mutex, interrupt) = (client.mutex("orders:42"), interrupt.clone());
///     move || mutex.lock_interruptibly(&interrupt).map(drop)
/// });
/// interrupt.interrupt();
/// assert!(matches!(waiting.join(), Ok(Err(Error::Interrupted))));
/// # guard.release()?;
/// # Ok(())
/// # }
/// ```
///
/// [`lock`]: super::Mutex::lock
/// [`lock_interruptibly`]: super::Mutex::lock_interruptibly
/// [`try_lock_for_interruptibly`]: super::Mutex::try_lock_for_interruptibly
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<watch::Sender<bool>>,
}

impl Interrupt {
    /// One that nobody has asked for yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the waits that were given this, those that are under way and those to come.
    ///
    /// Never blocks; may be called anywhere, in asynchronous code, too.
    pub fn interrupt(&self) {
        self.asked.send_replace(true);
    }

    /// Whether it was asked for and not yet cleared.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        *self.asked.borrow()
    }

    /// Takes the request back, so that later waits are not ended. Whether there was one.
    pub fn clear(&self) -> bool {
        self.asked.send_replace(false)
    }

    /// Runs `wait` until it is done or interrupted. What is dropped then leaves no hold.
    pub(super) async fn unless<T>(&self, wait: impl Future<Output = Result<T>>) -> Result<T> {
        let mut asked = self.asked.subscribe();
        tokio::select! {
            biased;
            _ = asked.wait_for(|asked| *asked) => Err(Error::Interrupted),
            done = wait => done,
        }
    }
}
