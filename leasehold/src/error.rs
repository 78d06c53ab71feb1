//! What can go wrong, said once.

use std::sync::Arc;

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Being busy is not an error: `try_*` answers `None`.
///
/// No variant carries a password or another secret.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client was closed, or the runtime that made it has ended.
    #[error("the client is closed: {0}")]
    Closed(&'static str),
    /// What was passed cannot work. Nothing was sent.
    #[error("bad setting: {0}")]
    Config(String),
    /// The wait was ended by an interrupt of the caller's. Nothing is held.
    #[error("the wait was interrupted")]
    Interrupted,
    /// The hold ended before this call: it ran out, or somebody removed it.
    #[error("the hold was lost: {0}")]
    Lost(&'static str),
    /// The server or a file answered what no lock of ours answers.
    #[error("unexpected state or answer: {0}")]
    Protocol(String),
    /// The server refused the command, or a side the connection. It was not run.
    #[error("refused, {0}")]
    Refused(Refusal),
    /// No answer in time. The command may have run.
    #[error("no answer within {0:?}; the outcome is unknown")]
    Timeout(std::time::Duration),
    /// The store could not be reached.
    #[error("unavailable: {message}")]
    Unavailable {
        /// What failed, without secrets.
        message: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
        /// Whether a command may have run before the connection failed.
        outcome_unknown: bool,
    },
}

/// Why a server refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The user name or password is wrong or missing.
    #[error("authentication: {0}")]
    Auth(String),
    /// The user lacks a right that the command needs.
    #[error("permission: {0}")]
    Permission(String),
    /// The server is a replica, or was demoted to one.
    #[error("the server is read-only: {0}")]
    ReadOnly(String),
    /// The server is at its memory limit.
    #[error("the server is out of memory: {0}")]
    OutOfMemory(String),
    /// The server cannot run scripts.
    #[error("scripts are disabled: {0}")]
    ScriptsDisabled(String),
    /// No TLS with this server: a certificate, its name or its time, or a server without TLS.
    #[error("TLS: {0}")]
    Tls(String),
}

impl Error {
    /// Whether the same call may succeed later without a change of settings or rights.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Unavailable { .. } => true,
            Self::Refused(refusal) => match refusal {
                Refusal::ReadOnly(_) | Refusal::OutOfMemory(_) => true,
                Refusal::Auth(_)
                | Refusal::Permission(_)
                | Refusal::ScriptsDisabled(_)
                | Refusal::Tls(_) => false,
            },
            Self::Closed(_)
            | Self::Config(_)
            | Self::Interrupted
            | Self::Lost(_)
            | Self::Protocol(_) => false,
        }
    }

    /// Whether the command may have run although the call failed.
    #[must_use]
    pub fn outcome_is_unknown(&self) -> bool {
        match self {
            Self::Timeout(_) => true,
            Self::Unavailable {
                outcome_unknown, ..
            } => *outcome_unknown,
            Self::Closed(_)
            | Self::Config(_)
            | Self::Interrupted
            | Self::Lost(_)
            | Self::Protocol(_)
            | Self::Refused(_) => false,
        }
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config(message.into())
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol(message.into())
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable {
            message: message.into(),
            source: None,
            outcome_unknown: false,
        }
    }
}
