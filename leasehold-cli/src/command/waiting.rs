//! What a person sees while waiting for a lock.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use leasehold::Mutex;
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::output;

/// Back to the start of the line, and erase it.
const CLEAR: &str = "\r\x1b[K";

/// Says if the wait is for a `run` that waits for us.
pub(super) async fn warn(name: &str, mutex: &Mutex) {
    let around = |variable| std::env::var(variable).ok();
    if around("LEASEHOLD_NAME").as_deref() != Some(name) {
        return;
    }
    // The identity of a hold is unique, so that the same one is of the same store.
    let outer = around("LEASEHOLD_HOLD");
    if let Ok(Some(status)) = mutex.status().await
        && outer.as_deref() == Some(status.hold.as_str())
    {
        output::complain(&format!(
            "{name} is held by the `run` around this one, which waits for its end: this waits for \
             ever (-n does not wait, --wait bounds it)"
        ));
    }
}

/// Shows who holds `mutex`, each second, until dropped.
pub(super) async fn show(name: &str, mutex: &Mutex) -> Infallible {
    if !io::stderr().is_terminal() {
        return pending().await;
    }
    let name = output::escaped(name);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let line = Line;
    loop {
        let holder = match mutex.status().await {
            Ok(Some(status)) => output::holder_in_short(&status),
            Ok(None) => "it was just released".to_owned(),
            Err(error) => output::escaped(&error.to_string()),
        };
        line.show(&format!("waiting for {name}: {holder}"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A line on the terminal that goes away.
struct Line;

impl Line {
    fn show(&self, text: &str) {
        // In the background, the terminal belongs to others.
        if tcgetpgrp(io::stderr()).is_ok_and(|front| front == getpgrp()) {
            // A terminal that does not know its width says 0.
            let width = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
            let width = if width == 0 { 80 } else { width };
            // A line that wraps could not be erased.
            let text: String = text.chars().take(width - 1).collect();
            print(&format!("{CLEAR}{text}"));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if tcgetpgrp(io::stderr()).is_ok_and(|front| front == getpgrp()) {
            print(CLEAR);
        }
    }
}

fn print(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
