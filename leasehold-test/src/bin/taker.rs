//! Takes a lock and holds it: a process for tests to stop and to kill.
//!
//! `taker URL NAME [--fixed MS | --ttl MS] [--loop]`
//!
//! Prints `held HOLD_ID`, and `lost` when the hold is lost. A line `release` on standard input
//! releases, and prints `released` or `lost`. The end of standard input means to hold for ever.
//! With `--loop` it locks and releases without end, printing `looping` after the first round.
#![allow(clippy::expect_used, reason = "a tool for tests fails by panicking")]

use std::io::Write;
use std::time::Duration;

use leasehold::{Client, Error, Mutex, MutexGuard};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().expect("usage: taker URL NAME [options]");
    let (url, name) = (next(), next());
    let client = Client::connect(&url).await.expect("the store is there");
    let mut mutex = client.mutex(&name);
    let mut forever = false;
    while let Some(option) = args.next() {
        if option == "--loop" {
            forever = true;
            continue;
        }
        let millis = args.next().and_then(|text| text.parse().ok());
        let time = Duration::from_millis(millis.expect("an option takes milliseconds"));
        mutex = match option.as_str() {
            "--fixed" => mutex.fixed_lease(time),
            "--ttl" => mutex.ttl(time),
            other => unreachable!("unknown option {other}"),
        };
    }
    if forever {
        cycle(&mutex).await;
    }
    let guard = mutex.lock().await.expect("the lock can be had");
    say(&format!("held {}", guard.hold_id()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    hold(guard, &mut lines).await;
    client.close().await;
}

/// Holds until told to release.
async fn hold(guard: MutexGuard, lines: &mut Lines<BufReader<Stdin>>) {
    tokio::select! {
        biased;
        () = guard.lost() => {
            say("lost");
            drop(guard);
            told(lines).await;
        }
        () = told(lines) => {
            match guard.release().await {
                Ok(()) => say("released"),
                Err(Error::Lost(_)) => say("lost"),
                Err(other) => say(&format!("failed {other}")),
            }
        }
    }
}

/// Returns when told to release, never at the end of the input.
async fn told(lines: &mut Lines<BufReader<Stdin>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "release" {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Locks and releases without end.
async fn cycle(mutex: &Mutex) -> ! {
    let mut told = false;
    loop {
        let guard = mutex.lock().await.expect("the lock can be had");
        tokio::task::yield_now().await;
        match guard.release().await {
            Ok(()) | Err(Error::Lost(_)) => {}
            Err(other) => unreachable!("a release failed: {other}"),
        }
        if !std::mem::replace(&mut told, true) {
            say("looping");
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").expect("the test listens");
    out.flush().expect("the test listens");
}
