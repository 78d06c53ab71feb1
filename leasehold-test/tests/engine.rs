//! The engine's loops where two things meet: a close and a call, a limit and a line, a waiter that
//! polls behind one that listens.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::testing::{self, stats};
use leasehold::{Backoff, Client, CloseReport, Error, Memory, Wait};
use leasehold_test::{Backend, Kind, Server, eventually, within};
use tokio::time::{Instant, sleep};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A client that gives a silent server up early.
async fn hasty(server: &Server) -> Client {
    let builder = Client::builder()
        .connect_timeout(300 * MILLI)
        .response_timeout(300 * MILLI)
        .call_timeout(2 * SECOND);
    builder.connect(&server.url()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_polling_waiter_behind_a_listening_one_asks_at_its_pauses() {
    let memory = Memory::new();
    let client = || Client::builder().memory(&memory);
    let (one, two) = (client(), client());
    let held = one.mutex("m").lock().await.unwrap();
    let listening = two.mutex("m");
    let first = tokio::spawn(async move { listening.lock().await.unwrap() });
    sleep(SECOND).await;
    let polling = two.mutex("m").wait(Wait::Poll(Backoff::default()));
    let second = tokio::spawn(async move { polling.lock().await.unwrap() });
    sleep(SECOND).await;
    held.release().await.unwrap();
    let first = first.await.unwrap();
    sleep(SECOND).await;
    let released = Instant::now();
    first.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    assert!(released.elapsed() < SECOND, "{:?}", released.elapsed());
}
