//! Whose turn it is at the terminal.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Our own group, if there is a terminal to work at, and whether it has the foreground.
pub(crate) fn standing() -> Option<(Pid, bool)> {
    let front = tcgetpgrp(open().ok()?).ok()?;
    Some((getpgrp(), front == getpgrp()))
}

/// Whether the command gets the foreground at once. If not, it gets it when it asks.
///
/// A neighbour in a pipeline, such as a pager, needs the terminal as well, and is in our group.
pub(crate) fn is_for_command() -> bool {
    let piped = fstat(io::stdout())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    io::stdin().is_terminal() && !piped
}

/// The terminal that signals come from, whatever standard input is.
fn open() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// The terminal, as the supervisor has it: lent to the command, owned by the group of `run`.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    owner: Pid,
    lent: bool,
}

impl Terminal {
    pub(super) fn new(owner: Pid) -> io::Result<Self> {
        Ok(Self {
            tty: open()?,
            owner,
            lent: false,
        })
    }

    /// Gives the foreground to `group`.
    pub(super) fn lend(&mut self, group: Pid) {
        self.lent = true;
        self.put_in_front(group);
    }

    /// Gives the foreground back, if it was lent.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            self.put_in_front(self.owner);
        }
    }

    /// A background group that changes the foreground gets SIGTTOU, so it is blocked for the call.
    fn put_in_front(&self, group: Pid) {
        let mut quiet = SigSet::empty();
        quiet.add(Signal::SIGTTOU);
        let Ok(before) = quiet.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return;
        };
        // A terminal that hung up, or a group that just ended: nobody is left to serve.
        let _ = tcsetpgrp(&self.tty, group);
        let _ = before.thread_set_mask();
    }
}
