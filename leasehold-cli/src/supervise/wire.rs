//! What `run` and its supervisor tell each other: one line each.

use std::fmt;
use std::str::FromStr;

/// From `run` to the supervisor. The end of the stream means that `run` died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lease lasts until then: milliseconds on the clock since boot.
    Lease(u64),
    /// The hold is lost: end the command now.
    Lost,
    /// Pass this signal to the command's group.
    Signal(i32),
    /// Continue the command, and give it the terminal if it is ours to give.
    Continue { foreground: bool },
}

/// From the supervisor to `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command runs, in a group of this number.
    Started(i32),
    /// The command could not be started, with this error number.
    Failed(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The lease would end within the grace: the command is being ended.
    Ending,
    /// So many processes cannot be ended; they may outlive the lease.
    Stuck(i32),
    Exited(i32),
    Signaled(i32),
}

/// A line that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(deadline) => write!(f, "lease {deadline}"),
            Self::Lost => write!(f, "lost"),
            Self::Signal(number) => write!(f, "signal {number}"),
            Self::Continue { foreground: true } => write!(f, "continue foreground"),
            Self::Continue { foreground: false } => write!(f, "continue"),
        }
    }
}

impl FromStr for Order {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        Ok(match split(line) {
            ("lease", deadline) => Self::Lease(number(deadline)?),
            ("lost", "") => Self::Lost,
            ("signal", signal) => Self::Signal(number(signal)?),
            ("continue", "foreground") => Self::Continue { foreground: true },
            ("continue", "") => Self::Continue { foreground: false },
            _ => return Err(Garbled),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => write!(f, "started {pid}"),
            Self::Failed(errno) => write!(f, "failed {errno}"),
            Self::Stopped(signal) => write!(f, "stopped {signal}"),
            Self::Ending => write!(f, "ending"),
            Self::Stuck(count) => write!(f, "stuck {count}"),
            Self::Exited(code) => write!(f, "exited {code}"),
            Self::Signaled(signal) => write!(f, "signaled {signal}"),
        }
    }
}

impl FromStr for Report {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        Ok(match split(line) {
            ("started", pid) => Self::Started(number(pid)?),
            ("failed", errno) => Self::Failed(number(errno)?),
            ("stopped", signal) => Self::Stopped(number(signal)?),
            ("ending", "") => Self::Ending,
            ("stuck", count) => Self::Stuck(number(count)?),
            ("exited", code) => Self::Exited(number(code)?),
            ("signaled", signal) => Self::Signaled(number(signal)?),
            _ => return Err(Garbled),
        })
    }
}

fn split(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

fn number<N: FromStr>(text: &str) -> Result<N, Garbled> {
    text.parse().map_err(|_| Garbled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_read_back() {
        for order in [
            Order::Lease(u64::MAX),
            Order::Lost,
            Order::Signal(15),
            Order::Continue { foreground: true },
            Order::Continue { foreground: false },
        ] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for bad in [
            "",
            "lease",
            "lease -1",
            "signal x",
            "lost 1",
            "continue there",
        ] {
            assert_eq!(bad.parse::<Order>(), Err(Garbled), "{bad:?}");
        }
    }

    #[test]
    fn reports_read_back() {
        for report in [
            Report::Started(4711),
            Report::Failed(2),
            Report::Stopped(20),
            Report::Ending,
            Report::Stuck(3),
            Report::Exited(255),
            Report::Signaled(9),
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
    }
}
