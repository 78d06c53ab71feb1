//! The engine's loops where two things meet: a close and a call, a limit and a line, a waiter that
//! polls behind one that listens.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::testing::{self, stats};
use leasehold::{Backoff, Client, CloseReport, Error, LeaseState, Memory, Wait};
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

#[tokio::test(start_paused = true)]
async fn looks_without_a_subscription_count_as_wakes_by_timer() {
    let memory = Memory::new();
    let client = || Client::builder().memory(&memory);
    let (one, two) = (client(), client());
    let _held = one.mutex("m").lock().await.unwrap();
    testing::hold_back_subscriptions(&two, true).unwrap();
    let got = two.mutex("m").try_lock_for(10 * SECOND).await.unwrap();
    assert!(got.is_none());
    let looks = stats(&two).woken_by_timer;
    assert!((8..=10).contains(&looks), "{looks}");
}

/// Starts to close the client, as another thread might at this moment.
fn begin_close(client: Client) -> Pin<Box<dyn Future<Output = CloseReport> + Send>> {
    let mut closing: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(client.close());
    let begun = closing
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(begun.is_pending(), "a request is out: {begun:?}");
    closing
}

#[tokio::test(start_paused = true)]
async fn a_lock_granted_while_its_client_is_closed_is_given_back() {
    let client = Client::memory();
    let (mutex, other) = (client.mutex("m"), client.clone());
    let (sender, receiver) = std::sync::mpsc::channel();
    testing::meanwhile(&client, move || sender.send(begin_close(other)).unwrap()).unwrap();
    let answer = mutex.lock().await;
    assert!(matches!(answer, Err(Error::Closed(_))), "{answer:?}");
    let report = receiver.recv().unwrap().await;
    let told = (report.released, report.unreleased, report.outstanding);
    assert_eq!(told, (1, 0, 0));
    assert_eq!(stats(&client).watched, 0);
}

#[tokio::test]
async fn bounded_tries_that_end_together_all_say_busy() {
    for kind in [Kind::Local, Kind::Redis] {
        let store = Backend::start(kind).await;
        let (one, two) = store.clients().await;
        let held = one.mutex("m").lock().await.unwrap();
        let tries = (0..50).map(|_| {
            let mutex = two.mutex("m");
            tokio::spawn(async move { mutex.try_lock_for(150 * MILLI).await })
        });
        for (number, tried) in tries.collect::<Vec<_>>().into_iter().enumerate() {
            let answer = tried.await.unwrap();
            assert!(matches!(answer, Ok(None)), "{kind:?} {number} {answer:?}");
        }
        held.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_close_waits_for_a_release_that_is_under_way() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    server.pause();
    let release = tokio::spawn(guard.release());
    sleep(50 * MILLI).await;
    let closing = tokio::spawn(client.close());
    sleep(200 * MILLI).await;
    let early = closing.is_finished();
    server.resume();
    let report = within("the close", closing).await.unwrap();
    assert!(!early, "{report:?}");
    assert_eq!((report.released, report.unreleased), (1, 0));
    assert!(matches!(release.await.unwrap(), Err(Error::Closed(_))));
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn waiters_in_one_line_bear_an_outage_together() {
    let mut server = Server::start().await;
    let client = hasty(&server).await;
    server.kill();
    let begun = Instant::now();
    let waiters = (0..8).map(|_| {
        let mutex = client.mutex("m").outage(SECOND);
        tokio::spawn(async move { mutex.lock().await })
    });
    for waiter in waiters.collect::<Vec<_>>() {
        let answer = within("the outage", waiter).await.unwrap();
        assert!(
            matches!(answer, Err(Error::Unavailable { .. })),
            "{answer:?}"
        );
    }
    let took = begun.elapsed();
    assert!(took >= SECOND && took < 2 * SECOND, "{took:?}");
}

#[tokio::test]
async fn a_break_whose_answer_is_missing_is_not_repeated() {
    let server = Server::start().await;
    let (client, other) = (hasty(&server).await, hasty(&server).await);
    let held = other.mutex("m").lock().await.unwrap();
    assert!(!client.mutex("warm").force_unlock().await.unwrap());
    let before = server.calls("evalsha").await;
    server.pause();
    let mutex = client.mutex("m");
    let broken = tokio::spawn(async move { mutex.force_unlock().await });
    sleep(500 * MILLI).await;
    server.resume();
    let answer = within("the break", broken).await.unwrap();
    // A second one might break the lock of whoever came next.
    assert!(
        answer.as_ref().is_err_and(Error::outcome_is_unknown),
        "{answer:?}"
    );
    assert_eq!(server.calls("evalsha").await, before + 1);
    drop(held);
}

#[tokio::test]
async fn a_lease_that_was_extended_is_owed_for_as_long() {
    let server = Server::start().await;
    let client = hasty(&server).await;
    let guard = client.mutex("m").fixed_lease(400 * MILLI).lock().await;
    let guard = guard.unwrap();
    guard.extend(60 * SECOND).await.unwrap();
    // Nothing can be sent for a while that is longer than the first lease.
    server
        .query::<u64>(&["CLIENT", "KILL", "TYPE", "normal"])
        .await;
    server.pause();
    sleep(50 * MILLI).await;
    drop(guard);
    sleep(SECOND).await;
    server.resume();
    eventually("the lock is free", async || server.keys().await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_without_an_answer_leaves_the_hold_uncertain_until_the_next() {
    let server = Server::start().await;
    let client = hasty(&server).await;
    let lease = 60 * SECOND;
    let guard = client.mutex("m").fixed_lease(lease).lock().await.unwrap();
    server.pause();
    let error = guard.extend(2 * lease).await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout(_) | Error::Unavailable { .. }),
        "{error:?}"
    );
    assert_eq!(guard.lease().state(), LeaseState::Uncertain);
    assert!(
        guard.lease().remaining() < lease,
        "an extension without an answer was relied upon"
    );
    server.resume();
    let certain = async || guard.lease().state() == LeaseState::Held;
    eventually("the hold is certain again", certain).await;
    guard.release().await.unwrap();
}
