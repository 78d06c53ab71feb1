//! Checked values: what is wrong with the input is found here, before anything is sent.

use std::ffi::OsString;
use std::time::Duration;

use crate::cli::{self, Cli};
use crate::exit::Exit;

/// A command that makes sense.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) place: Place,
    pub(crate) task: Task,
}

/// Where the locks are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nobody said: this machine.
    Here,
    At(String),
}

#[derive(Debug)]
pub(crate) enum Task {
    Run(Run),
    Status { name: String, json: bool },
    Ls { pattern: String, json: bool },
    Unlock { name: String },
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) patience: Patience,
    pub(crate) lease: Lease,
    pub(crate) min_hold: Duration,
    pub(crate) grace: Duration,
    pub(crate) busy: Exit,
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Forever,
    Once,
    For(Duration),
}

/// How long the lock is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    Fixed(Duration),
    Renewed(Duration),
}

impl Lease {
    pub(crate) const fn length(self) -> Duration {
        match self {
            Self::Fixed(length) | Self::Renewed(length) => length,
        }
    }
}

/// A sentence about what cannot work.
type Wrong = String;

impl TryFrom<Cli> for Config {
    type Error = Wrong;

    fn try_from(cli: Cli) -> Result<Self, Wrong> {
        let place = place(cli.global)?;
        let task = match cli.command {
            cli::Command::Run(run) => Task::Run(run.try_into()?),
            cli::Command::Status(cli::Status { name, json }) => Task::Status { name, json },
            cli::Command::Ls(cli::Ls { pattern, json }) => Task::Ls { pattern, json },
            cli::Command::Unlock(cli::Unlock { name, force: true }) => Task::Unlock { name },
            cli::Command::Unlock(_) => {
                return Err(
                    "unlock breaks the lock whoever holds it, and the holder learns of it \
                            late: say --force if that is meant"
                        .into(),
                );
            }
            cli::Command::Supervise(_) => return Err("supervise is no task".into()),
        };
        Ok(Self { place, task })
    }
}

fn place(global: cli::Global) -> Result<Place, Wrong> {
    let distributed = global
        .url
        .as_deref()
        .is_some_and(|url| !url.starts_with("local:"));
    match global.url {
        // A variable that a template left empty must not turn into "this machine only".
        Some(url) if url.is_empty() => Err("the URL is empty".into()),
        _ if global.require_distributed && !distributed => {
            Err("--require-distributed needs the URL of a server (--url or LEASEHOLD_URL)".into())
        }
        Some(url) => Ok(Place::At(url)),
        None => Ok(Place::Here),
    }
}

impl TryFrom<cli::Run> for Run {
    type Error = Wrong;

    fn try_from(run: cli::Run) -> Result<Self, Wrong> {
        let cli::Kind::Mutex = run.kind;
        let lease = match (run.lease, run.ttl) {
            (Some(lease), _) => Lease::Fixed(lease),
            (None, ttl) => Lease::Renewed(ttl.unwrap_or(Duration::from_secs(30))),
        };
        let patience = match (run.no_wait, run.wait) {
            (true, _) => Patience::Once,
            (false, Some(wait)) => Patience::For(wait),
            (false, None) => Patience::Forever,
        };
        let min_hold = run.min_hold.unwrap_or_default();
        Ok(Self {
            grace: grace(run.grace, lease)?,
            min_hold: min_hold_within(min_hold, lease)?,
            name: run.name,
            command: run.command,
            patience,
            lease,
            busy: Exit::Busy(run.conflict_exit_code.unwrap_or(Exit::BUSY)),
        })
    }
}

fn grace(asked: Option<Duration>, lease: Lease) -> Result<Duration, Wrong> {
    let Some(grace) = asked else {
        return Ok((lease.length() / 3).min(Duration::from_secs(5)));
    };
    if grace < Duration::from_millis(1) {
        return Err("the grace must be at least 1ms".into());
    }
    if grace >= lease.length() / 2 {
        return Err(format!(
            "a grace of {} leaves too little of a lease of {}: it must be less than half",
            humantime::format_duration(grace),
            humantime::format_duration(lease.length()),
        ));
    }
    Ok(grace)
}

fn min_hold_within(min_hold: Duration, lease: Lease) -> Result<Duration, Wrong> {
    match lease {
        // A little less than the lease can be relied upon.
        Lease::Fixed(length) if min_hold >= length / 20 * 19 => Err(format!(
            "--min-hold {} does not fit into --lease {}, which is not renewed: \
             it must be less than 95 % of it",
            humantime::format_duration(min_hold),
            humantime::format_duration(length),
        )),
        Lease::Fixed(_) | Lease::Renewed(_) => Ok(min_hold),
    }
}

/// `url` without what opens doors: what CMD may see of it. None if that cannot be told.
///
/// A `leasehold` that CMD starts then fails to log in, instead of falling back to this machine.
pub(crate) fn without_password(url: &str) -> Option<String> {
    // Secrets may also stand in a query; none is needed to name a server.
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((before, host)) = url.rsplit_once('@') else {
        return Some(url.to_owned());
    };
    let (scheme, login) = before.split_once("://")?;
    match login.split_once(':').map_or(login, |(user, _)| user) {
        "" => Some(format!("{scheme}://{host}")),
        user => Some(format!("{scheme}://{user}@{host}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn config(line: &str) -> Result<Config, Wrong> {
        let words = ["leasehold"].into_iter().chain(line.split(' '));
        Cli::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .try_into()
    }

    fn run(line: &str) -> Run {
        match config(line).unwrap().task {
            Task::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_help() {
        let run = run("--url redis://h run n -- true");
        assert_eq!(run.patience, Patience::Forever);
        assert_eq!(run.lease, Lease::Renewed(Duration::from_secs(30)));
        assert_eq!(run.grace, Duration::from_secs(5));
        assert_eq!(run.busy.code(), 75);
    }

    #[test]
    fn a_short_lease_has_a_short_grace() {
        let run = run("--url local: run --lease 3s n -- true");
        assert_eq!(run.grace, Duration::from_secs(1));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for bad in [
            "run n -- true --url=",
            "run n",
            "run --ttl 4s --grace 2s n -- true",
            "run --grace 0s n -- true",
            "run --ttl 4s --lease 4s n -- true",
            "run --wait 4s -n n -- true",
            "run --wait soon n -- true",
            "run -E 0 n -- true",
            "run -E 256 n -- true",
            "run --kind rwlock n -- true",
            "run --lease 4s --min-hold 4s n -- true",
            "run --lease 4s --min-hold 3900ms n -- true",
            "unlock n",
            "status",
            "--url local: --require-distributed ls",
        ] {
            // The first row has its fault after the double hyphen: that is CMD's own business.
            let verdict = config(&format!("--url local: {bad}"));
            let own_business = bad.contains("-- true --url=");
            assert_eq!(verdict.is_ok(), own_business, "{bad}: {verdict:?}");
        }
        assert!(config("--url= ls").is_err());
    }

    #[test]
    fn the_command_never_sees_the_password() {
        for (url, seen) in [
            ("redis://h:1/0", Some("redis://h:1/0")),
            ("redis://:secret@h/0", Some("redis://h/0")),
            ("redis://user:secret@h", Some("redis://user@h")),
            ("redis://user:se@cr/et@h", Some("redis://user@h")),
            ("redis://h?password=secret", Some("redis://h")),
            ("secret@h", None),
        ] {
            assert_eq!(without_password(url).as_deref(), seen, "{url}");
        }
    }
}
