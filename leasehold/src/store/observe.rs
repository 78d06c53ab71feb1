//! What is told of connections. The names are part of the interface: the manual's `observing`
//! lists them, and a test compares.

use std::fmt::Display;

use crate::error::Error;

/// The target of every span and event that the manual lists.
pub(crate) const TARGET: &str = "leasehold";

/// What a connection is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Connection {
    Commands,
    Announcements,
}

impl Connection {
    const fn word(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Announcements => "announcements",
        }
    }

    pub(crate) fn connected(self, server: &impl Display) {
        let connection = self.word();
        tracing::debug!(name: "connected", target: TARGET, %server, connection, "connected");
    }

    pub(crate) fn disconnected(self, server: &impl Display, reason: &str) {
        let connection = self.word();
        tracing::warn!(
            name: "disconnected",
            target: TARGET,
            %server,
            connection,
            reason,
            "lost the connection"
        );
    }

    pub(crate) fn unreachable(self, server: &impl Display, error: &Error) {
        let connection = self.word();
        tracing::warn!(
            name: "unreachable",
            target: TARGET,
            %server,
            connection,
            %error,
            "cannot connect, trying on"
        );
    }

    pub(crate) fn reconnected(self, server: &impl Display) {
        let connection = self.word();
        tracing::info!(
            name: "reconnected",
            target: TARGET,
            %server,
            connection,
            "connected again"
        );
        #[cfg(feature = "metrics")]
        metrics::counter!(RECONNECTS, "connection" => connection).increment(1);
    }
}

/// The name of the counter of new connections after the first.
#[cfg(feature = "metrics")]
pub(crate) const RECONNECTS: &str = "leasehold_reconnects_total";

/// A server did not answer, so the connection is given up.
pub(crate) fn silent(server: &impl Display) {
    tracing::warn!(
        name: "silent",
        target: TARGET,
        %server,
        "the server is silent, connecting anew"
    );
}
