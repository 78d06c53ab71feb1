//! Named owners whose steps get no answer, and holds that pass between processes.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::time::Duration;

use leasehold::testing::stats;
use leasehold::{Client, Error, LeaseState, Mutex, MutexGuard, Refusal};
use leasehold_test::{Backend, Kind, Random, Server, Taker, eventually, within};
use tokio::time::{Instant, sleep, timeout};

const TAKER: &str = env!("CARGO_BIN_EXE_taker");
const SHORT: Duration = Duration::from_millis(200);

/// A client that soon gives up on an answer.
async fn impatient(server: &Server) -> Client {
    let builder = Client::builder()
        .response_timeout(SHORT / 2)
        .call_timeout(SHORT);
    builder.connect(&server.url()).await.unwrap()
}

async fn entered(mutex: &Mutex, times: usize) -> Vec<MutexGuard> {
    let mut guards = vec![];
    for _ in 0..times {
        guards.push(mutex.lock().await.unwrap());
    }
    guards
}

/// The count as the server has it.
async fn count(server: &Server) -> u64 {
    let counts: Vec<u64> = server.query(&["HVALS", "m"]).await;
    assert!(counts.len() <= 1, "two holds: {counts:?}");
    counts.first().copied().unwrap_or(0)
}

async fn counts(server: &Server, expected: u64) {
    let what = format!("the count is {expected}");
    eventually(&what, async || count(server).await == expected).await;
}

async fn paid(client: &Client) {
    eventually("nothing is owed", async || stats(client).owed == 0).await;
}

#[tokio::test]
async fn a_step_that_is_answered_late_is_one_step() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let mutex = client.mutex("m").owner(&client.owner());
    let outer = mutex.lock().await.unwrap();
    server.pause();
    let step = tokio::spawn(async move { mutex.lock().await });
    sleep(SHORT).await;
    server.resume();
    let inner = step.await.unwrap().unwrap();
    assert_eq!(count(&server).await, 2);
    inner.release().await.unwrap();
    assert_eq!(count(&server).await, 1);
    outer.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn a_step_repeated_over_new_connections_is_one_step() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let mutex = client.mutex("m").owner(&client.owner());
    let mut guards = entered(&mutex, 2).await;
    server.pause();
    let step = tokio::spawn(async move { mutex.lock().await });
    // Several silences: the connection is replaced, and the step sent anew.
    sleep(SHORT * 5).await;
    server.resume();
    guards.push(within("the step", step).await.unwrap().unwrap());
    assert_eq!(count(&server).await, 3);
    for left in [2, 1] {
        guards.pop().unwrap().release().await.unwrap();
        counts(&server, left).await;
    }
    assert_eq!(guards[0].lease().state(), LeaseState::Held);
    drop(guards);
    counts(&server, 0).await;
    paid(&client).await;
}

#[tokio::test]
async fn a_dropped_step_is_stepped_back() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let mutex = client.mutex("m").owner(&client.owner());
    let outer = mutex.lock().await.unwrap();
    server.pause();
    assert!(
        timeout(SHORT, mutex.lock()).await.is_err(),
        "nobody answers"
    );
    server.resume();
    paid(&client).await;
    assert_eq!(count(&server).await, 1);
    assert_eq!(outer.lease().state(), LeaseState::Held);
    let inner = mutex.lock().await.unwrap();
    assert_eq!(count(&server).await, 2);
    drop((inner, outer));
    counts(&server, 0).await;
}

#[tokio::test]
async fn a_step_without_an_answer_is_an_error_and_stepped_back() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let mutex = client.mutex("m").owner(&client.owner());
    let outer = mutex.lock().await.unwrap();
    server.pause();
    let error = mutex.try_lock().await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(outer.lease().state(), LeaseState::Held);
    server.resume();
    paid(&client).await;
    counts(&server, 1).await;
    let inner = mutex.lock().await.unwrap();
    assert_eq!(count(&server).await, 2);
    inner.release().await.unwrap();
    outer.release().await.unwrap();
    counts(&server, 0).await;
}

#[tokio::test]
async fn a_step_down_without_an_answer_is_finished() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let mutex = client.mutex("m").owner(&client.owner());
    let mut guards = entered(&mutex, 4).await;
    server.pause();
    let error = guards.pop().unwrap().release().await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert!(
        timeout(SHORT / 4, guards.pop().unwrap().release())
            .await
            .is_err()
    );
    drop(guards.pop());
    assert_eq!(guards[0].lease().state(), LeaseState::Held);
    server.resume();
    counts(&server, 1).await;
    paid(&client).await;
    guards.pop().unwrap().release().await.unwrap();
    assert_eq!(count(&server).await, 0);
}

#[tokio::test]
async fn a_first_entry_without_an_answer_lets_in_whoever_comes_behind() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let owner = client.owner();
    let mutex = client.mutex("m").owner(&owner);
    server.pause();
    let both = tokio::spawn({
        let (one, two) = (mutex.clone(), mutex.clone());
        async move { tokio::join!(one.lock(), two.try_lock()) }
    });
    sleep(SHORT).await;
    server.resume();
    let (one, two) = within("both", both).await.unwrap();
    let (one, two) = (one.unwrap(), two.unwrap().expect("it holds"));
    assert_eq!(one.hold_id(), two.hold_id());
    assert_eq!(mutex.hold_count(&owner).await.unwrap(), 2);
    drop((one, two));
    counts(&server, 0).await;
    paid(&client).await;
}

#[tokio::test]
async fn outages_at_random_moments_leave_no_count_behind() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let mutex = client.mutex("m").owner(&client.owner());
    let mut random = Random::seeded("outages_at_random_moments");
    let end = Instant::now() + Duration::from_secs(6);
    let mut tasks = vec![];
    for _ in 0..4 {
        let (mutex, mut random) = (mutex.clone(), Random::fixed(random.number()));
        tasks.push(tokio::spawn(async move {
            let mut guards: Vec<MutexGuard> = vec![];
            while Instant::now() < end {
                let cut = random.up_to(Duration::from_millis(3));
                match random.between(0, 5) {
                    0 => guards.extend(timeout(cut, mutex.lock()).await.ok().and_then(Result::ok)),
                    1 => guards.extend(mutex.try_lock().await.ok().flatten()),
                    2 => drop(guards.pop()),
                    3 => {
                        if let Some(guard) = guards.pop() {
                            let _ = guard.release().await;
                        }
                    }
                    _ => sleep(cut).await,
                }
                for guard in &guards {
                    assert_ne!(guard.lease().state(), LeaseState::Lost);
                }
                guards.truncate(20);
            }
        }));
    }
    while Instant::now() < end {
        sleep(random.up_to(Duration::from_millis(300))).await;
        server.pause();
        sleep(random.up_to(Duration::from_millis(350))).await;
        server.resume();
    }
    for task in tasks {
        task.await.unwrap();
    }
    paid(&client).await;
    counts(&server, 0).await;
    assert!(server.keys().await.is_empty());
    assert_eq!(stats(&client).owners, 0);
}

#[tokio::test]
async fn what_the_server_keeps_of_a_lost_hold_does_not_bar_its_owner() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let mutex = client.mutex("m").owner(&client.owner()).fixed_lease(SHORT);
    let lost = entered(&mutex, 2).await;
    server.query::<u64>(&["PEXPIRE", "m", "3600000"]).await;
    within("the loss", lost[0].lost()).await;
    let fresh = timeout(Duration::from_secs(5), mutex.lock()).await;
    let fresh = fresh.expect("the rest is released").unwrap();
    assert_ne!(fresh.hold_id(), lost[0].hold_id());
    drop(lost);
    paid(&client).await;
    assert_eq!(count(&server).await, 1);
    fresh.release().await.unwrap();
}

#[tokio::test]
async fn a_count_that_somebody_else_changed_is_read_anew() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let mutex = client.mutex("m").owner(&client.owner());
    let mut guards = entered(&mutex, 2).await;
    let hold = guards[0].hold_id().as_str();
    server.query::<u64>(&["HSET", "m", hold, "7"]).await;
    guards.push(mutex.lock().await.unwrap());
    guards.pop().unwrap().release().await.unwrap();
    assert_eq!(count(&server).await, 2);
    guards.pop().unwrap().release().await.unwrap();
    assert_eq!(count(&server).await, 1);
    guards.pop().unwrap().release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn a_step_without_the_right_to_its_end_leaves_the_count_as_it_was() {
    let server = Server::start().await;
    let rights = ["ACL", "SETUSER", "bob", "on", "nopass", "~*", "&*", "+@all"];
    server.query::<()>(&rights).await;
    let url = server.url().replace("redis://", "redis://bob@");
    let client = Client::connect(&url).await.unwrap();
    let owner = client.owner();
    let outer = client.mutex("m").owner(&owner).lock().await.unwrap();
    let inner = client.mutex("m").owner(&owner).lock().await.unwrap();
    server
        .query::<()>(&["ACL", "SETUSER", "bob", "-pexpire"])
        .await;
    let longer = client.mutex("m").owner(&owner).ttl(Duration::from_secs(90));
    let error = longer.try_lock().await.unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::Permission(_))),
        "{error:?}"
    );
    assert_eq!(count(&server).await, 2);
    assert_eq!(inner.lease().state(), LeaseState::Held);
    inner.release().await.unwrap();
    assert_eq!(count(&server).await, 1);
    outer.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn the_hold_of_a_dead_process_is_adopted_on_a_server() {
    let store = Backend::start(Kind::Redis).await;
    let url = store.url().unwrap();
    let ttl = Duration::from_millis(1500);
    let mut taker = Taker::spawn(TAKER, &url, "m", &["--ttl", "1500"]);
    let hold: leasehold::HoldId = taker.held().await.parse().unwrap();
    taker.kill().await;
    let client = store.client().await;
    let guard = client.mutex("m").ttl(ttl).adopt(hold).await.unwrap();
    sleep(2 * ttl).await;
    assert_eq!(guard.lease().state(), LeaseState::Held);
    guard.release().await.unwrap();
    assert!(!client.mutex("m").is_locked().await.unwrap());
}

#[tokio::test]
async fn a_living_process_learns_that_its_adopted_hold_was_released() {
    let store = Backend::start(Kind::Redis).await;
    let mut taker = Taker::spawn(TAKER, &store.url().unwrap(), "m", &["--ttl", "900"]);
    let hold = taker.held().await.parse().unwrap();
    let client = store.client().await;
    let guard = client.mutex("m").adopt(hold).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(taker.line().await, "lost");
}

#[tokio::test]
async fn an_adopted_hold_of_this_machine_stays_bound_to_its_process() {
    let store = Backend::start(Kind::Local).await;
    let ttl = Duration::from_millis(900);
    let mut taker = Taker::spawn(TAKER, &store.url().unwrap(), "m", &["--ttl", "60000"]);
    let hold = taker.held().await.parse().unwrap();
    let client = store.client().await;
    let guard = client.mutex("m").ttl(ttl).adopt(hold).await.unwrap();
    sleep(ttl).await;
    assert_eq!(guard.lease().state(), LeaseState::Held);
    taker.kill().await;
    timeout(ttl, guard.lost())
        .await
        .expect("it ended with its process");
    assert!(client.mutex("m").try_lock().await.unwrap().is_some());
}
