//! `leasehold run`.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

use leasehold::{Client, Error, LeaseState, Mutex, MutexGuard};
use rustix::process::{Signal, kill_current_process_group};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::parting::Parting;
use super::taking::Wanted;
use super::{Failure, connect, rehearsal};
use crate::config::{Lease, Run};
use crate::exit::Exit;
use crate::output::{complain, escaped, span};
use crate::place::Place;
use crate::signals::{Caught, Signals, asks_to_end};
use crate::supervise::{Attendant, Job, Order, Report, bury_orphans, terminal};

/// How often the lease is looked at, for the supervisor.
const LOOK: Duration = Duration::from_millis(100);
/// How long a stop of this process may take to arrive. A group that no shell watches never stops.
const STOP: Duration = Duration::from_millis(100);

pub(super) async fn run(place: &Place, task: Run) -> Result<Exit, Failure> {
    rehearse(place, &task).await?;
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = connect(place, &task.label) => client?,
        number = signals.end() => return Ok(Exit::Signal(number)),
    };
    let mut parting = Parting::new();
    let exit = under_lock(&client, place, &task, &mut signals, &mut parting).await;
    // What is left of a wait that ended may be a hold of the full length.
    parting.begin(task.lease.length());
    let _ = parting.bear(&mut signals, client.close()).await;
    exit
}

/// Lets the library check all settings on a store in this process, before anything is sent.
async fn rehearse(place: &Place, task: &Run) -> Result<(), Error> {
    let client = rehearsal(place, &task.label);
    let checked = mutex(&client, task).try_lock().await;
    let checked = checked.map(drop);
    client.close().await;
    checked
}

fn mutex(client: &Client, task: &Run) -> Mutex {
    let mutex = super::mutex(client, &task.lock);
    match task.lease {
        Lease::Fixed(lease) => mutex.fixed_lease(lease),
        Lease::Renewed(ttl) => mutex.ttl(ttl),
    }
}

async fn under_lock(
    client: &Client,
    place: &Place,
    task: &Run,
    signals: &mut Signals,
    parting: &mut Parting,
) -> Result<Exit, Failure> {
    let mutex = mutex(client, task);
    let wanted = Wanted {
        name: &task.lock.name,
        mutex: &mutex,
        patience: task.patience,
        busy: task.busy,
    };
    let guard = match wanted.take(signals, parting).await? {
        Ok(guard) => guard,
        Err(exit) => return Ok(exit),
    };
    let long_enough = sleep(task.min_hold);
    let watch = Watch {
        task,
        place,
        guard: &guard,
        signals,
        lost: false,
        hurried: false,
    };
    let ended = watch.attend().await?;
    // We may stay for long; what the command left behind is to end as it would without us.
    tokio::spawn(bury_orphans());
    parting.hurried = ended.hurried;
    if !ended.lost && !ended.hurried {
        tokio::select! {
            () = long_enough => {}
            () = guard.lost() => {}
            _ = signals.end() => parting.hurried = true,
        }
    }
    let lease = guard.lease();
    // Others may have a lost lock at once, since the command has ended; but not at any price.
    parting.begin(if ended.lost {
        Duration::ZERO
    } else {
        lease.remaining()
    });
    let given_back = parting.bear(signals, guard.hand_over()).await;
    let exit = if ended.lost {
        Exit::Lost
    } else {
        verdict(given_back, ended.exit)
    };
    if let Some(key) = ended.key.filter(|_| !matches!(exit, Exit::Lost)) {
        // The terminal told the command alone; a script around us is to end as well.
        let _ = kill_current_process_group(key);
    }
    Ok(exit)
}

/// The exit of a command that ended with `exit`, after this answer to the release.
fn verdict(given_back: Option<Result<bool, Error>>, exit: Exit) -> Exit {
    let why = match given_back {
        Some(Ok(_)) => return exit,
        Some(Err(Error::Lost(reason))) => {
            complain(&format!("the hold was lost: {reason}"));
            return Exit::Lost;
        }
        Some(Err(error)) => format!(": {error}"),
        None => String::new(),
    };
    complain(&format!(
        "the lock is not given back yet and may stay for its TTL{why}"
    ));
    exit
}

/// What is watched over while the command runs.
struct Watch<'a> {
    task: &'a Run,
    place: &'a Place,
    guard: &'a MutexGuard,
    signals: &'a mut Signals,
    /// The command was told to end, since the hold is lost or about to be.
    lost: bool,
    /// A signal asked us to end.
    hurried: bool,
}

/// How the command ended.
struct Ended {
    exit: Exit,
    lost: bool,
    hurried: bool,
    /// The signal of a key, if one ended the command.
    key: Option<Signal>,
}

impl Watch<'_> {
    /// Runs the command.
    async fn attend(mut self) -> Result<Ended, Failure> {
        let lease = self.guard.lease();
        let mut attendant = Attendant::start(Job {
            command: &self.task.command,
            lease: &lease,
            grace: self.task.grace,
            hold_file: self.guard.hold_file()?,
            environment: self.environment(),
        })?;
        let mut look = interval(LOOK.min(self.task.lease.length() / 10));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            tokio::select! {
                report = attendant.next() => match report {
                    Some(Report::Started(_)) => {}
                    Some(Report::Stopped(signal)) => self.stopped(signal, &mut attendant).await,
                    Some(Report::Ending) => self.lose(),
                    Some(Report::Stuck(count)) => stuck(count),
                    end => break end,
                },
                caught = self.signals.next() => drop(attendant.tell(match caught {
                    Caught::Continued => go_on(terminal::is_for_command()),
                    Caught::Passed(number) => {
                        self.hurried |= asks_to_end(number);
                        Order::Signal(number)
                    }
                })),
                () = lease.lost(), if !self.lost => {
                    // First of all, since a standard error that nobody reads holds us up.
                    attendant.tell(Order::Lost);
                    self.lose();
                }
                _ = look.tick() => attendant.follow(&lease),
            }
        };
        let mut key = None;
        let exit = match end {
            Some(end) => {
                key = self.key(end, attendant.in_front());
                attendant.gone().await;
                self.exit(end)
            }
            None => {
                complain("the supervisor was killed: ending the command");
                let left = attendant.clean_up(self.task.grace, &lease).await;
                if left > 0 {
                    stuck(left);
                }
                Exit::Internal
            }
        };
        Ok(Ended {
            exit,
            lost: self.lost,
            hurried: self.hurried,
            key,
        })
    }

    /// The key that ended the command: one that the terminal sent to nobody but it.
    fn key(&self, end: Report, in_front: bool) -> Option<Signal> {
        match end {
            Report::Signaled(number) if in_front && !self.hurried => Signal::from_named_raw(number)
                .filter(|signal| [Signal::INT, Signal::QUIT].contains(signal)),
            _ => None,
        }
    }

    /// What CMD is told. A token of a `run` around this one is not passed on: it is another lock's.
    fn environment(&self) -> Vec<(&'static str, Option<OsString>)> {
        let hold = self.guard.hold_id().as_str();
        let token = self.guard.token().map(|token| token.to_string().into());
        let mut environment = vec![
            ("LEASEHOLD_NAME", Some(OsString::from(&self.task.lock.name))),
            ("LEASEHOLD_HOLD", Some(OsString::from(hold))),
            ("LEASEHOLD_TOKEN", token),
        ];
        let place = self.place.environment().into_iter();
        environment.extend(place.map(|(name, value)| (name, Some(value))));
        environment
    }

    fn exit(&self, end: Report) -> Exit {
        match end {
            Report::Exited(code) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
            Report::Signaled(number) => Exit::Signal(number),
            Report::Failed(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                let program = self.task.command.first().map(|it| it.to_string_lossy());
                complain(&format!("{}: {error}", program.unwrap_or_default()));
                match error.kind() {
                    io::ErrorKind::NotFound => Exit::NotFound,
                    _ => Exit::CannotStart,
                }
            }
            Report::Started(_) | Report::Stopped(_) | Report::Ending | Report::Stuck(_) => {
                Exit::Internal
            }
        }
    }

    /// Says once that the command has to end.
    fn lose(&mut self) {
        if !std::mem::replace(&mut self.lost, true) {
            let name = &self.task.lock.name;
            complain(&match self.guard.lease().state() {
                LeaseState::Lost => format!("the hold of {name} was lost: ending the command"),
                _ => format!("the lease of {name} is about to end: ending the command"),
            });
        }
    }

    /// The command was stopped. In a terminal, this process stops too, so that the shell sees it.
    async fn stopped(&mut self, signal: i32, attendant: &mut Attendant) {
        let Some((_, foreground)) = terminal::standing() else {
            return;
        };
        let by_terminal = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&signal);
        if foreground && by_terminal {
            // It asked for a terminal that it has, or gets now: it was brought to the front.
            attendant.tell(go_on(true));
            return;
        }
        complain(&format!(
            "suspended: the lease of {} is not renewed meanwhile and ends in {}",
            escaped(&self.task.lock.name),
            span(self.guard.lease().remaining()),
        ));
        let halt = Signal::from_named_raw(signal).filter(|&halt| halt != Signal::STOP);
        let _ = kill_current_process_group(halt.unwrap_or(Signal::TSTP));
        // From here on we are stopped, if a shell watches this group, until it continues us.
        let continued = timeout(STOP, self.signals.continued()).await.is_ok();
        if continued || halt.is_some() {
            attendant.tell(go_on(by_terminal || terminal::is_for_command()));
        }
    }
}

fn stuck(count: impl fmt::Display) {
    complain(&format!(
        "{count} processes of the command cannot be ended; they may outlive the lease"
    ));
}

/// The command goes on; in the foreground if it `wants` that and it is ours.
fn go_on(wants: bool) -> Order {
    let foreground = wants && terminal::standing().is_some_and(|(_, foreground)| foreground);
    Order::Continue { foreground }
}
