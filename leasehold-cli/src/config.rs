//! Checked values: what is wrong with the input is found here, before anything is sent.

use std::ffi::OsString;
use std::time::Duration;

use leasehold::{HoldId, Wire};

use crate::cli::{self, Cli};
use crate::exit::Exit;
use crate::place::Place;

/// A command that makes sense.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) place: Place,
    pub(crate) task: Task,
}

#[derive(Debug)]
pub(crate) enum Task {
    Run(Run),
    Acquire(Acquire),
    Ask(Question),
}

/// What needs a store, but neither signals nor time to tidy up.
#[derive(Debug)]
pub(crate) enum Question {
    Status { lock: Lock, json: bool },
    Ls { pattern: String, json: bool },
    Wait(Wait),
    Renew(Renew),
    Release { lock: Lock, hold: HoldId },
    Unlock { lock: Lock },
}

/// Which lock, and of what form.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) wire: Wire,
    /// Whether a hold gets a token.
    pub(crate) fenced: bool,
}

impl Lock {
    fn new(name: String, format: &cli::Format) -> Self {
        let wire = if format.plain {
            Wire::Plain
        } else {
            Wire::Redisson
        };
        let fenced = false;
        Self { name, wire, fenced }
    }

    fn taken(name: String, form: &cli::Form) -> Self {
        Self {
            fenced: form.fenced,
            ..Self::new(name, &form.format)
        }
    }
}

#[derive(Debug)]
pub(crate) struct Renew {
    pub(crate) lock: Lock,
    pub(crate) hold: HoldId,
    pub(crate) lease: Duration,
}

impl Question {
    /// The lock that is asked about, if it is one.
    pub(crate) fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Status { lock, .. } | Self::Release { lock, .. } | Self::Unlock { lock } => {
                Some(lock)
            }
            Self::Wait(wait) => Some(&wait.lock),
            Self::Renew(renew) => Some(&renew.lock),
            Self::Ls { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) lock: Lock,
    pub(crate) longest: Option<Duration>,
    pub(crate) busy: Exit,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) lock: Lock,
    pub(crate) command: Vec<OsString>,
    pub(crate) patience: Patience,
    pub(crate) busy: Exit,
    pub(crate) lease: Lease,
    pub(crate) min_hold: Duration,
    pub(crate) grace: Duration,
    pub(crate) label: String,
}

#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) lock: Lock,
    pub(crate) lease: Duration,
    pub(crate) patience: Patience,
    pub(crate) busy: Exit,
    pub(crate) label: String,
    pub(crate) json: bool,
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
pub(crate) type Wrong = String;

impl TryFrom<Cli> for Config {
    type Error = Wrong;

    fn try_from(cli: Cli) -> Result<Self, Wrong> {
        let place = Place::new(cli.global, std::env::var_os("LEASEHOLD_URL"))?;
        let task = match cli.command {
            cli::Command::Run(run) => Task::Run(run.try_into()?),
            cli::Command::Acquire(acquire) => Task::Acquire(acquire.into()),
            other => Task::Ask(other.try_into()?),
        };
        Ok(Self { place, task })
    }
}

impl TryFrom<cli::Command> for Question {
    type Error = Wrong;

    fn try_from(command: cli::Command) -> Result<Self, Wrong> {
        Ok(match command {
            cli::Command::Status(status) => Self::Status {
                lock: Lock::new(status.name, &status.format),
                json: status.json,
            },
            cli::Command::Ls(cli::Ls { pattern, json }) => Self::Ls { pattern, json },
            cli::Command::Wait(wait) => Self::Wait(Wait {
                lock: Lock::new(wait.name, &wait.format),
                longest: wait.wait,
                busy: busy(wait.conflict_exit_code),
            }),
            cli::Command::Renew(renew) => Self::Renew(Renew {
                lock: Lock::new(renew.name, &renew.format),
                hold: hold(&renew.hold)?,
                lease: renew.lease.unwrap_or(Duration::from_secs(30)),
            }),
            cli::Command::Release(release) => Self::Release {
                hold: hold(&release.hold)?,
                lock: Lock::new(release.name, &release.format),
            },
            cli::Command::Unlock(unlock) if unlock.force => Self::Unlock {
                lock: Lock::new(unlock.name, &unlock.format),
            },
            cli::Command::Unlock(_) => {
                return Err(
                    "unlock breaks the lock whoever holds it, and the holder learns of it \
                            late: say --force if that is meant"
                        .into(),
                );
            }
            cli::Command::Run(_)
            | cli::Command::Acquire(_)
            | cli::Command::Completions(_)
            | cli::Command::Man(_) => {
                return Err("this asks nothing of a store".into());
            }
        })
    }
}

fn hold(text: &str) -> Result<HoldId, Wrong> {
    text.parse()
        .map_err(|error: leasehold::Error| error.to_string())
}

fn busy(asked: Option<u8>) -> Exit {
    Exit::Busy(asked.unwrap_or(Exit::BUSY))
}

impl TryFrom<cli::Run> for Run {
    type Error = Wrong;

    fn try_from(run: cli::Run) -> Result<Self, Wrong> {
        let cli::Kind::Mutex = run.kind;
        let lease = match (run.lease, run.ttl) {
            (Some(lease), _) => Lease::Fixed(lease),
            (None, ttl) => Lease::Renewed(ttl.unwrap_or(Duration::from_secs(30))),
        };
        let min_hold = run.min_hold.unwrap_or_default();
        Ok(Self {
            grace: grace(run.grace, lease)?,
            min_hold: min_hold_within(min_hold, lease)?,
            lock: Lock::taken(run.name, &run.form),
            command: run.command,
            patience: (&run.patience).into(),
            busy: busy(run.patience.conflict_exit_code),
            lease,
            label: run.label.label.unwrap_or_default(),
        })
    }
}

impl From<cli::Acquire> for Acquire {
    fn from(acquire: cli::Acquire) -> Self {
        Self {
            lock: Lock::taken(acquire.name, &acquire.form),
            lease: acquire.lease,
            patience: (&acquire.patience).into(),
            busy: busy(acquire.patience.conflict_exit_code),
            label: acquire.label.label.unwrap_or_default(),
            json: acquire.json,
        }
    }
}

impl From<&cli::Patience> for Patience {
    fn from(patience: &cli::Patience) -> Self {
        match (patience.no_wait, patience.wait) {
            (true, _) => Self::Once,
            (false, Some(wait)) => Self::For(wait),
            (false, None) => Self::Forever,
        }
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
            "run -E -1 n -- true",
            "run -E 256 n -- true",
            "run --kind rwlock n -- true",
            "run --lease 4s --min-hold 4s n -- true",
            "run --lease 4s --min-hold 3900ms n -- true",
            "unlock n",
            "status",
            "--url local: --require-distributed ls",
            "--url local: --url-file file ls",
            "wait -E 256 n",
            "acquire n",
            "acquire --lease 1s -n --wait 1s n",
            "renew n",
            "release n",
            "release n --hold me",
        ] {
            // The first row has its fault after the double hyphen: that is CMD's own business.
            let verdict = config(&format!("--url local: {bad}"));
            let own_business = bad.contains("-- true --url=");
            assert_eq!(verdict.is_ok(), own_business, "{bad}: {verdict:?}");
        }
    }
}
