//! What stands for TLS where the feature `tls` is off: nothing can be set, nothing connects.

use std::error::Error as StdError;

use tokio::net::TcpStream;

use crate::error::{Error, Result};

/// Nothing can be set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {}

impl Trust {
    #[expect(clippy::unused_self, reason = "the one with TLS looks")]
    pub(crate) fn is_set(&self) -> bool {
        false
    }
}

/// There is none.
#[derive(Clone)]
pub(super) enum Tls {}

impl Tls {
    pub(super) fn new(_host: &str, _trust: &Trust) -> Result<Self> {
        Err(Error::config(
            "a rediss: URL needs leasehold's feature \"tls\", and this program was built without",
        ))
    }

    pub(super) async fn wrap(&self, _stream: TcpStream, _server: &str) -> Result<TcpStream> {
        match *self {}
    }
}

pub(super) fn refusal(_failed: &(dyn StdError + 'static), _server: &str) -> Option<Error> {
    None
}
