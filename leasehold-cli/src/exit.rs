//! Exit codes: one enum, one table.

use std::process::ExitCode;

use leasehold::Error;

/// The table, as `--help` shows it.
pub(crate) const TABLE: &str = "\
Exit codes:
  0..255  run: those of CMD itself
  128+N   run: signal N ended CMD, or ended leasehold while it waited for the lock
  141     other commands: nobody reads the output
  126     run: CMD was found but could not be started
  127     run: CMD was not found
  0       status: held; other commands: done
  1       status: free
  64      usage: an option, a name, a URL or a combination that cannot work; nothing was sent
  69      the server could not be reached, or did not answer in time
  70      a bug of leasehold, or the system failed it (no process, no space for its output), or
          the supervisor of CMD was killed
  75      run: the lock was not acquired in time (another code with -E)
  76      run: the hold was lost, or its lease was about to end; beats CMD's own code
  77      the server refused (log-in, rights, read-only, memory), or the key is not such a lock";

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// `status` found nobody.
    Free,
    /// CMD ended with this code.
    Command(u8),
    /// This signal ended CMD, or us while we waited.
    Signal(i32),
    CannotStart,
    NotFound,
    Usage,
    Unreachable,
    Internal,
    /// Not acquired; `-E` names another code.
    Busy(u8),
    Lost,
    Refused,
}

impl Exit {
    pub(crate) const BUSY: u8 = 75;

    /// The code that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Free => 1,
            Self::Command(code) | Self::Busy(code) => code,
            Self::Signal(number) => u8::try_from(128 + number).unwrap_or(u8::MAX),
            Self::CannotStart => 126,
            Self::NotFound => 127,
            Self::Usage => 64,
            Self::Unreachable => 69,
            Self::Internal => 70,
            Self::Lost => 76,
            Self::Refused => 77,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            Error::Config(_) => Self::Usage,
            Error::Timeout(_) | Error::Unavailable { .. } => Self::Unreachable,
            Error::Lost(_) => Self::Lost,
            // The key holds something else: leasehold declines to touch it, as a server declines.
            Error::Refused(_) | Error::Protocol(_) => Self::Refused,
            // Only we close the client, and not while it is in use. A variant that is new to this
            // table is a bug of ours, too.
            _ => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_error_has_the_code_of_the_table() {
        let unavailable = Error::Unavailable {
            message: String::new(),
            source: None,
            outcome_unknown: false,
        };
        let refused = Error::Refused(leasehold::Refusal::Auth(String::new()));
        for (error, code) in [
            (Error::Config(String::new()), 64),
            (Error::Timeout(Duration::ZERO), 69),
            (unavailable, 69),
            (Error::Closed(""), 70),
            (Error::Lost(""), 76),
            (refused, 77),
            (Error::Protocol(String::new()), 77),
        ] {
            assert_eq!(Exit::from(&error).code(), code, "{error:?}");
        }
    }

    #[test]
    fn the_codes_are_those_of_the_table() {
        for exit in [
            Exit::CannotStart,
            Exit::NotFound,
            Exit::Usage,
            Exit::Unreachable,
            Exit::Internal,
            Exit::Busy(Exit::BUSY),
            Exit::Lost,
            Exit::Refused,
        ] {
            let row = format!("\n  {}     ", exit.code());
            assert!(TABLE.contains(row.trim_end()), "{exit:?}");
        }
        assert_eq!(Exit::Signal(15).code(), 143);
    }
}
