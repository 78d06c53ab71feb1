//! The signals that `run` and its supervisor do not die of.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that are passed to the command; before there is one, all but the last end the wait.
const PASSED: [SignalKind; 7] = [
    SignalKind::terminate(),
    SignalKind::interrupt(),
    SignalKind::hangup(),
    SignalKind::quit(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
    SignalKind::window_change(),
];

/// The signals that reach this process, from the moment that this is made.
#[derive(Debug)]
pub(crate) struct Signals {
    passed: Vec<(i32, Signal)>,
    continued: Signal,
}

impl Signals {
    /// Catches what is not ignored.
    pub(crate) fn listen() -> io::Result<Self> {
        let passed = catch(&PASSED)?;
        let sigcont = rustix::process::Signal::CONT.as_raw();
        Ok(Self {
            passed,
            continued: signal(SignalKind::from_raw(sigcont))?,
        })
    }

    /// What arrives next. Cancel safe.
    pub(crate) async fn next(&mut self) -> Caught {
        poll_fn(|cx| {
            // First, so that a command is continued before it gets what came meanwhile.
            if self.continued.poll_recv(cx).is_ready() {
                return Poll::Ready(Caught::Continued);
            }
            for (number, signal) in &mut self.passed {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(Caught::Passed(*number));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns when this process was stopped and goes on. Cancel safe.
    pub(crate) async fn continued(&mut self) {
        self.continued.recv().await;
    }

    /// The next signal that asks this process to end. Cancel safe.
    pub(crate) async fn end(&mut self) -> i32 {
        let harmless = SignalKind::window_change().as_raw_value();
        loop {
            match self.next().await {
                Caught::Passed(number) if number != harmless => return number,
                Caught::Passed(_) | Caught::Continued => {}
            }
        }
    }
}

/// Whether this signal is one by which people and service managers end a program.
pub(crate) fn asks_to_end(number: i32) -> bool {
    [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ]
    .iter()
    .any(|kind| kind.as_raw_value() == number)
}

/// What arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caught {
    /// We were stopped, and go on.
    Continued,
    /// A signal for the command.
    Passed(i32),
}

/// Catches these signals, each with its number.
///
/// What this process was told to ignore, as by nohup(1), stays ignored, also for the command: what
/// is caught would be back at its default there.
pub(crate) fn catch(kinds: &[SignalKind]) -> io::Result<Vec<(i32, Signal)>> {
    let ignored = ignored();
    kinds
        .iter()
        .map(|kind| (kind.as_raw_value(), *kind))
        .filter(|(number, _)| ignored & (1 << (number - 1)) == 0)
        .map(|(number, kind)| Ok((number, signal(kind)?)))
        .collect()
}

/// The set of ignored signals, bit n - 1 for signal n.
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .as_deref()
        .and_then(|status| {
            status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:"))
                .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        })
        .unwrap_or(0)
}
