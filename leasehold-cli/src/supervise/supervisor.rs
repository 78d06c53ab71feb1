//! The supervisor's side.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::link::{Received, Sender};
use super::processes::{descendants, signal_all, signal_group};
use super::terminal::Terminal;
use super::wire::{Order, Report};
use super::{LEAD, STUBBORN, clock, link};
use crate::cli;
use crate::exit::Exit;
use crate::output;
use crate::signals::catch;

/// How long the command may take to end when `run` has died; the grace if that is less.
const ORPHAN_GRACE: u64 = 2_000;
/// Timers stop in suspend, so the clock is looked at this often.
const LOOK: u64 = 500;

/// Supervises one command, from its start until it has ended.
pub(crate) fn work(args: cli::Supervise) -> Exit {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(supervise(args))) {
        Ok(()) => Exit::Success,
        Err(error) => {
            output::complain(&format!(
                "this is the part of `run` that supervises: {error}"
            ));
            Exit::Internal
        }
    }
}

async fn supervise(args: cli::Supervise) -> io::Result<()> {
    // A service manager may signal everybody; we must outlive the command.
    let _caught = catch(&[
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ])?;
    let mut children = signal(SignalKind::child())?;
    // Started by way of /proc, we would be called "exe". Not "leasehold" either: killing all of
    // that name must leave somebody who ends the command.
    let _ = rustix::thread::set_name(c"hold-supervisor");
    set_child_subreaper(Some(getpid()))?;

    let socket = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let given = Given::receive(&socket, args.hold_file)?;
    let owner = args.terminal_of.and_then(Pid::from_raw);
    // A terminal that hung up meanwhile asks for no manners.
    let terminal = owner.and_then(|owner| Terminal::new(owner).ok());
    let (orders, reports) = link::split(socket)?;

    if clock::now().saturating_add(args.grace) >= args.deadline {
        reports.send(Report::Ending);
        reports.send(Report::Signaled(Signal::TERM.as_raw()));
        return Ok(());
    }
    // Kept until the end: the command may close its copy.
    let (group, _hold) = match given.start(args.command) {
        Ok(started) => started,
        Err(error) => {
            let invalid = rustix::io::Errno::INVAL.raw_os_error();
            reports.send(Report::Failed(error.raw_os_error().unwrap_or(invalid)));
            return Ok(());
        }
    };
    reports.send(Report::Started(group.as_raw_nonzero().get()));
    let mut supervisor = Supervisor {
        group,
        terminal,
        reports,
        deadline: args.deadline,
        grace: args.grace,
        ended: None,
        ending: None,
    };
    if args.foreground {
        supervisor.obey(Order::Continue { foreground: true });
    }
    let mut orders = Some(orders);
    while !supervisor.is_done() {
        tokio::select! {
            biased;
            order = next(&mut orders) => match order {
                Some(line) => line.parse().into_iter().for_each(|order| supervisor.obey(order)),
                None => supervisor.orphaned(),
            },
            _ = children.recv() => {}
            () = sleep(supervisor.nap()) => {}
        }
        supervisor.reap();
        supervisor.keep_time();
    }
    supervisor.leave();
    Ok(())
}

/// The next order. None once, when `run` has died; after that there are no more.
async fn next(orders: &mut Option<Received>) -> Option<String> {
    let Some(lines) = orders else {
        return std::future::pending().await;
    };
    let line = lines.next_line().await.ok().flatten();
    if line.is_none() {
        *orders = None;
    }
    line
}

/// What `run` hands over for the command.
struct Given {
    stdin: OwnedFd,
    stdout: OwnedFd,
    hold: Option<OwnedFd>,
}

impl Given {
    fn receive(socket: &StdStream, with_hold: bool) -> io::Result<Self> {
        let mut given = link::receive(socket)?.into_iter();
        let (Some(stdin), Some(stdout)) = (given.next(), given.next()) else {
            return Err(io::Error::other("it needs its descriptors"));
        };
        let hold = given.next();
        if hold.is_some() != with_hold {
            return Err(io::Error::other("it needs its hold file"));
        }
        Ok(Self {
            stdin,
            stdout,
            hold,
        })
    }

    /// Starts the command as the leader of a new group.
    fn start(self, words: Vec<OsString>) -> io::Result<(Pid, Option<OwnedFd>)> {
        let mut words = words.into_iter();
        if let Some(hold) = &self.hold {
            fcntl_setfd(hold, FdFlags::empty())?;
        }
        let child = Command::new(words.next().unwrap_or_default())
            .args(words)
            .stdin(self.stdin)
            .stdout(self.stdout)
            .process_group(0)
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        pid.map(|pid| (pid, self.hold))
            .ok_or_else(|| io::Error::other("the command has no process number"))
    }
}

struct Supervisor {
    /// The command's process number, and that of its group.
    group: Pid,
    terminal: Option<Terminal>,
    reports: Sender,
    deadline: u64,
    grace: u64,
    /// How the command ended, if it has.
    ended: Option<Report>,
    ending: Option<Ending>,
}

/// TERM was sent.
struct Ending {
    kill_at: u64,
    gave_up: bool,
}

impl Supervisor {
    fn obey(&mut self, order: Order) {
        match order {
            Order::Lease(deadline) => self.deadline = self.deadline.max(deadline),
            Order::Lost => self.end(clock::now() + self.grace),
            // The number of a group that has ended may be another's soon.
            Order::Signal(_) | Order::Continue { .. } if self.ended.is_some() => {}
            Order::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    signal_group(self.group, signal);
                }
            }
            Order::Continue { foreground } => {
                if let Some(terminal) = self.terminal.as_mut().filter(|_| foreground) {
                    terminal.lend(self.group);
                }
                signal_group(self.group, Signal::CONT);
            }
        }
    }

    fn orphaned(&mut self) {
        self.end(clock::now() + self.grace.min(ORPHAN_GRACE));
    }

    /// Asks everything to end, and plans to kill it then, or when the lease is nearly over.
    fn end(&mut self, kill_at: u64) {
        let lead = LEAD.min(self.grace / 2);
        let kill_at = kill_at.min(self.deadline.saturating_sub(lead));
        if let Some(ending) = &mut self.ending {
            ending.kill_at = ending.kill_at.min(kill_at);
            return;
        }
        self.ending = Some(Ending {
            kill_at,
            gave_up: false,
        });
        signal_all(self.living_group(), Signal::TERM);
        // What is stopped does not hear.
        signal_all(self.living_group(), Signal::CONT);
    }

    /// The group, while its number cannot be another's. Its later members are descendants anyway.
    fn living_group(&self) -> Option<Pid> {
        self.ended.is_none().then_some(self.group)
    }

    /// Does what is due by the clock.
    fn keep_time(&mut self) {
        let now = clock::now();
        let group = self.living_group();
        match &mut self.ending {
            None if self.ended.is_none() && now.saturating_add(self.grace) >= self.deadline => {
                self.reports.send(Report::Ending);
                self.end(self.deadline);
            }
            Some(ending) if now >= ending.kill_at => {
                signal_all(group, Signal::KILL);
                ending.gave_up = now >= ending.kill_at.saturating_add(STUBBORN);
            }
            None | Some(_) => {}
        }
    }

    /// Collects children that ended or stopped, adopted ones as well.
    fn reap(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((pid, status))) = wait(options) {
            if pid == self.group {
                self.learn(status);
            }
        }
    }

    fn learn(&mut self, status: WaitStatus) {
        if let Some(signal) = status.stopping_signal() {
            if let Some(terminal) = &mut self.terminal {
                terminal.take_back();
            }
            self.reports.send(Report::Stopped(signal));
        }
        let exited = status.exit_status().map(Report::Exited);
        let signaled = status.terminating_signal().map(Report::Signaled);
        self.ended = self.ended.or(exited).or(signaled);
    }

    /// Background children of a command that ended by itself are left alone, as a shell does.
    fn is_done(&self) -> bool {
        match &self.ending {
            None => self.ended.is_some(),
            Some(ending) if ending.gave_up => true,
            Some(_) => self.ended.is_some() && descendants().is_empty(),
        }
    }

    fn leave(mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        let left = descendants().len();
        if self.ending.is_some() && left > 0 {
            let left = i32::try_from(left).unwrap_or(i32::MAX);
            self.reports.send(Report::Stuck(left));
        }
        if let Some(ended) = self.ended {
            self.reports.send(ended);
        }
    }

    fn nap(&self) -> Duration {
        let due = match &self.ending {
            Some(_) => 10,
            None => self
                .deadline
                .saturating_sub(self.grace)
                .saturating_sub(clock::now())
                .clamp(1, LOOK),
        };
        Duration::from_millis(due)
    }
}
