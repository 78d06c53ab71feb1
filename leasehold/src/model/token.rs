//! Fencing tokens.

use std::fmt;

/// The number of a fenced hold: higher than that of every fenced hold of the same lock before it.
///
/// Pass it along with each write, and let the resource refuse a write whose token is lower than
/// one that it has seen. [`manual::fencing`](crate::manual::fencing) has recipes.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::Client::memory();
/// let mutex = client.mutex("orders:42").fenced();
/// let guard = mutex.lock().await?;
/// let first = guard.token().unwrap();
/// guard.release().await?;
/// let guard = mutex.lock().await?;
/// assert!(guard.token().unwrap() > first);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(u64);

impl Token {
    /// A token of this number, as read back from where it was kept.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number. Tokens of a server fit into an `i64`.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
