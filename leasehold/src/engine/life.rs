//! Whether a client is open, and why not.

use tokio::sync::watch;

use crate::error::{Error, Result};

/// Open until ended; every waiting call ends with it.
#[derive(Debug)]
pub(crate) struct Life {
    ended: watch::Sender<Option<&'static str>>,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self {
            ended: watch::Sender::new(None),
        }
    }

    /// Ends it, for the reason given; a reason given before stays. Whether it was open.
    pub(crate) fn end(&self, reason: &'static str) -> bool {
        self.ended.send_if_modified(|ended| {
            let open = ended.is_none();
            ended.get_or_insert(reason);
            open
        })
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.ended
            .borrow()
            .map_or(Ok(()), |reason| Err(Error::Closed(reason)))
    }

    /// Returns when it has ended.
    pub(crate) async fn ended(&self) -> Error {
        let mut ended = self.ended.subscribe();
        let reason = ended
            .wait_for(Option::is_some)
            .await
            .map_or(None, |reason| *reason);
        Error::Closed(reason.unwrap_or("it was closed"))
    }

    /// Runs `call` while the client is open.
    pub(crate) async fn while_open<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            error = self.ended() => Err(error),
            result = call => result,
        }
    }
}
