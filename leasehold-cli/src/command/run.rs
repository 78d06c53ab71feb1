//! `leasehold run`.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

use leasehold::{Client, Error, LeaseState, Mutex, MutexGuard};
use rustix::process::{Signal, kill_current_process_group};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::{Failure, connect, waiting};
use crate::config::{Lease, Patience, Place, Run, without_password};
use crate::exit::Exit;
use crate::output::{complain, escaped, span};
use crate::signals::{Caught, Signals, asks_to_end};
use crate::supervise::{Attendant, Job, Order, Report, terminal};

/// How often the lease is looked at, for the supervisor.
const LOOK: Duration = Duration::from_millis(100);
/// How long the store is told about a hold that is over anyway.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a stop of this process may take to arrive. A group that no shell watches never stops.
const STOP: Duration = Duration::from_millis(100);

pub(super) async fn run(place: &Place, task: Run) -> Result<Exit, Failure> {
    rehearse(&task).await?;
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = connect(place) => client?,
        number = signals.end() => return Ok(Exit::Signal(number)),
    };
    let exit = under_lock(&client, &task, &mut signals).await;
    // What a lost hold leaves behind ends by itself, about now.
    let lost = matches!(exit, Ok(Exit::Lost));
    let patience = if lost { FAREWELL } else { Duration::MAX };
    let _ = timeout(patience, client.close()).await;
    exit
}

/// Lets the library check all settings on a store in this process, before anything is sent.
async fn rehearse(task: &Run) -> Result<(), Error> {
    let client = Client::memory();
    let checked = mutex(&client, task).try_lock().await;
    let checked = checked.map(drop);
    client.close().await;
    checked
}

fn mutex(client: &Client, task: &Run) -> Mutex {
    let mutex = client.mutex(&task.name);
    match task.lease {
        Lease::Fixed(lease) => mutex.fixed_lease(lease),
        Lease::Renewed(ttl) => mutex.ttl(ttl),
    }
}

async fn under_lock(client: &Client, task: &Run, signals: &mut Signals) -> Result<Exit, Failure> {
    let mutex = mutex(client, task);
    let taken = tokio::select! {
        biased;
        number = signals.end() => return Ok(Exit::Signal(number)),
        taken = acquire(&mutex, task.patience) => taken?,
        never = waiting::show(&task.name, &mutex) => match never {},
    };
    let Some(guard) = taken else {
        complain(&format!("{} is held by another: not acquired", task.name));
        return Ok(task.busy);
    };
    let long_enough = sleep(task.min_hold);
    let watch = Watch {
        task,
        guard: &guard,
        signals,
        lost: false,
        hurried: false,
    };
    let Ended {
        exit,
        lost,
        hurried,
    } = watch.attend().await?;
    if !lost && !hurried {
        tokio::select! {
            () = long_enough => {}
            () = guard.lost() => {}
            _ = signals.end() => {}
        }
    }
    Ok(give_back(guard, exit, lost).await)
}

async fn acquire(mutex: &Mutex, patience: Patience) -> Result<Option<MutexGuard>, Error> {
    match patience {
        Patience::Forever => mutex.lock().await.map(Some),
        Patience::Once => mutex.try_lock().await,
        Patience::For(wait) => mutex.try_lock_for(wait).await,
    }
}

/// Gives the lock back, to the command's descendants where they keep it, and has the last word.
async fn give_back(guard: MutexGuard, exit: Exit, lost: bool) -> Exit {
    if lost {
        // The command has ended, so others may have the lock at once; but not at any price.
        let left = guard.lease().remaining().min(FAREWELL);
        let _ = timeout(left, guard.hand_over()).await;
        return Exit::Lost;
    }
    match guard.hand_over().await {
        Ok(_) => exit,
        Err(Error::Lost(reason)) => {
            complain(&format!("the hold was lost: {reason}"));
            Exit::Lost
        }
        Err(error) => {
            complain(&format!(
                "the lock is not given back yet and may stay for its TTL: {error}"
            ));
            exit
        }
    }
}

/// What is watched over while the command runs.
struct Watch<'a> {
    task: &'a Run,
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
                    Some(Report::Stopped(signal)) => self.stopped(signal, &attendant).await,
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
        let exit = match end {
            Some(end) => {
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
        })
    }

    fn environment(&self) -> Vec<(&'static str, Option<OsString>)> {
        const URL: &str = "LEASEHOLD_URL";
        let hold = self.guard.hold_id().as_str();
        let mut environment = vec![
            ("LEASEHOLD_NAME", Some(OsString::from(&self.task.name))),
            ("LEASEHOLD_HOLD", Some(OsString::from(hold))),
        ];
        if let Some(url) = std::env::var_os(URL) {
            let shown = url.to_str().and_then(without_password);
            environment.push((URL, shown.map(OsString::from)));
        }
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
            let name = &self.task.name;
            complain(&match self.guard.lease().state() {
                LeaseState::Lost => format!("the hold of {name} was lost: ending the command"),
                _ => format!("the lease of {name} is about to end: ending the command"),
            });
        }
    }

    /// The command was stopped. In a terminal, this process stops too, so that the shell sees it.
    async fn stopped(&mut self, signal: i32, attendant: &Attendant) {
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
            escaped(&self.task.name),
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
