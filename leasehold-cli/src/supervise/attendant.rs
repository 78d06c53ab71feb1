//! The side of `run`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;
use std::time::Duration;

use leasehold::Lease;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::link::{Received, Sender};
use super::processes::{descendants, signal_all};
use super::wire::{Order, Report};
use super::{LEAD, STUBBORN, SUPERVISE, clock, link, terminal};

/// What is to be supervised.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) lease: &'a Lease,
    pub(crate) grace: Duration,
    pub(crate) hold_file: Option<File>,
    /// How the command's environment differs from ours: what is set, and what is not there.
    pub(crate) environment: Vec<(&'static str, Option<OsString>)>,
}

/// A running supervisor, as `run` sees it. When this process dies, the supervisor ends the command.
#[derive(Debug)]
pub(crate) struct Attendant {
    child: Child,
    reports: Received,
    orders: Sender,
    group: Option<Pid>,
    told: u64,
    in_front: bool,
}

impl Attendant {
    /// Starts the supervisor, which starts the command.
    pub(crate) fn start(job: Job<'_>) -> io::Result<Self> {
        // If the supervisor is killed, the command becomes our child.
        set_child_subreaper(Some(getpid()))?;
        let (ours, theirs) = StdStream::pair()?;
        let (stdin, stdout) = (io::stdin(), io::stdout());
        if let Some(hold_file) = &job.hold_file {
            // It goes over the socket; inherited by number, the command would have it twice.
            fcntl_setfd(hold_file, FdFlags::CLOEXEC)?;
        }
        let mut descriptors = vec![stdin.as_fd(), stdout.as_fd()];
        descriptors.extend(job.hold_file.as_ref().map(AsFd::as_fd));
        link::pass(&ours, &descriptors)?;

        let deadline = deadline(job.lease);
        // Not by its path: the file may have been replaced while we waited for the lock.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("leasehold")
            .arg(SUPERVISE)
            .arg(format!("--deadline={deadline}"))
            .arg(format!("--grace={}", clock::millis(job.grace).max(1)));
        let standing = terminal::standing();
        let in_front =
            standing.is_some_and(|(_, foreground)| foreground) && terminal::is_for_command();
        if let Some((group, _)) = standing {
            command.arg(format!("--terminal-of={}", group.as_raw_nonzero()));
        }
        command.args(in_front.then_some("--foreground"));
        command.args(job.hold_file.is_some().then_some("--hold-file"));
        for (name, value) in job.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command
            .arg("--")
            .args(job.command)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let (reports, orders) = link::split(ours)?;
        Ok(Self {
            child,
            reports,
            orders,
            group: None,
            told: deadline,
            in_front,
        })
    }

    /// What the supervisor says next; none when it has ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        loop {
            let line = self.reports.next_line().await.ok().flatten()?;
            let Ok(report) = line.parse() else { continue };
            match report {
                Report::Started(pid) => self.group = Pid::from_raw(pid),
                Report::Stopped(_) => self.in_front = false,
                _ => {}
            }
            return Some(report);
        }
    }

    /// Tells the supervisor something. One that does not listen acts by the deadline it knows.
    pub(crate) fn tell(&mut self, order: Order) -> bool {
        if let Order::Continue { foreground } = order {
            self.in_front |= foreground;
        }
        self.orders.send(order)
    }

    /// Whether the terminal's keys reach the command and nobody else, or did when it ended.
    pub(crate) fn in_front(&self) -> bool {
        self.in_front
    }

    /// Tells the supervisor if the lease has grown, and continues it should it be stopped.
    pub(crate) fn follow(&mut self, lease: &Lease) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::CONT);
        }
        let deadline = deadline(lease);
        // Less is only the clock's grain.
        if deadline > self.told + 2 && self.tell(Order::Lease(deadline)) {
            self.told = deadline;
        }
    }

    /// Waits until the supervisor and its descriptors are gone.
    pub(crate) async fn gone(mut self) {
        let _ = self.child.wait().await;
    }

    /// Ends what a killed supervisor has left behind, as it would have done: before the lease
    /// ends. How many processes cannot be ended.
    ///
    /// Should this process have had other children before it became `run`, they end as well:
    /// the command cannot be told from them, and must not outlive the lock.
    pub(crate) async fn clean_up(self, grace: Duration, lease: &Lease) -> usize {
        let group = self.group;
        self.gone().await;
        let grace = clock::millis(grace);
        let latest = deadline(lease).saturating_sub(LEAD.min(grace / 2));
        let kill_at = clock::now().saturating_add(grace).min(latest);
        signal_all(group, Signal::TERM);
        signal_all(group, Signal::CONT);
        loop {
            let now = clock::now();
            let left = descendants().len();
            if left == 0 || now >= kill_at.saturating_add(STUBBORN) {
                return left;
            }
            if now >= kill_at {
                signal_all(group, Signal::KILL);
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// When the lease ends, on the clock that both sides read. Never too late: the clock is read first.
fn deadline(lease: &Lease) -> u64 {
    let now = clock::now();
    now.saturating_add(clock::millis(lease.remaining()))
}
