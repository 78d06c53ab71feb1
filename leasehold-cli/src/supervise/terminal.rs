//! Whose turn it is at the terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Our own group, if standard input is our terminal, and whether it has the foreground.
pub(crate) fn standing() -> Option<(Pid, bool)> {
    let front = tcgetpgrp(io::stdin()).ok()?;
    Some((getpgrp(), front == getpgrp()))
}

/// The terminal, as the supervisor has it: lent to the command, owned by the group of `run`.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: OwnedFd,
    owner: Pid,
    lent: bool,
}

impl Terminal {
    pub(super) fn new(tty: impl AsFd, owner: Pid) -> io::Result<Self> {
        let tty = tty.as_fd().try_clone_to_owned()?;
        Ok(Self {
            tty,
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
