//! Processes that are stopped and killed while they hold.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::time::Duration;

use leasehold::Client;
use leasehold_test::{Backend, Kind, Random, Taker, within};
use tokio::time::{Instant, sleep};

const TAKER: &str = env!("CARGO_BIN_EXE_taker");
const ROUNDS: usize = 20;

/// Kills a process in the midst of its lock and unlock loops; then `next` wants the lock.
async fn killed_at_a_random_moment(url: &str, random: &mut Random, ttl: &str) {
    let mut taker = Taker::spawn(TAKER, url, "m", &["--ttl", ttl, "--loop"]);
    assert_eq!(taker.line().await, "looping");
    sleep(random.up_to(Duration::from_millis(20))).await;
    taker.kill().await;
}

/// Takes the lock, and says how long it took.
async fn takes_over(client: &Client) -> Duration {
    let begun = Instant::now();
    let guard = client.mutex("m").lock().await.unwrap();
    let took = begun.elapsed();
    guard.release().await.unwrap();
    took
}

#[tokio::test]
async fn after_a_kill_on_a_server_the_next_gets_the_lock_within_the_ttl() {
    let store = Backend::start(Kind::Redis).await;
    let url = store.url().unwrap();
    let mut random = Random::seeded("after_a_kill_on_a_server");
    let next = store.client().await;
    let Backend::Redis(server) = &store else {
        unreachable!("it was asked for");
    };
    for round in 0..ROUNDS {
        killed_at_a_random_moment(&url, &mut random, "1500").await;
        let left: i64 = server.query(&["PTTL", "m"]).await;
        assert!(left == -2 || (0..=1_500).contains(&left), "{round} {left}");
        let took = takes_over(&next).await;
        let bound = Duration::from_millis(1_500) + store.slack();
        assert!(took < bound, "{round} {took:?}");
    }
}

#[tokio::test]
async fn after_a_kill_on_one_machine_the_next_gets_the_lock_at_once() {
    let store = Backend::start(Kind::Local).await;
    let url = store.url().unwrap();
    let mut random = Random::seeded("after_a_kill_on_one_machine");
    let next = store.client().await;
    for round in 0..ROUNDS {
        killed_at_a_random_moment(&url, &mut random, "30000").await;
        let took = takes_over(&next).await;
        assert!(took < Duration::from_secs(1), "{round} {took:?}");
    }
}

#[tokio::test]
async fn a_waiter_takes_over_from_a_holder_that_is_killed() {
    for (kind, ttl, bound) in [
        (Kind::Redis, "1500", Duration::from_millis(1_500)),
        (Kind::Local, "30000", Duration::from_millis(500)),
    ] {
        let store = Backend::start(kind).await;
        let url = store.url().unwrap();
        let mut first = Taker::spawn(TAKER, &url, "m", &["--ttl", ttl]);
        let hold = first.held().await;
        let mut second = Taker::spawn(TAKER, &url, "m", &["--ttl", ttl]);
        let client = store.client().await;
        let status = client.mutex("m").status().await.unwrap().unwrap();
        assert_eq!(status.hold.as_str(), hold);
        sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        first.kill().await;
        second.held().await;
        let took = begun.elapsed();
        assert!(took < bound + store.slack(), "{kind:?} {took:?}");
        second.release().await;
    }
}

#[tokio::test]
async fn a_waiter_in_another_process_is_woken_by_a_release() {
    for kind in [Kind::Redis, Kind::Local] {
        let store = Backend::start(kind).await;
        let url = store.url().unwrap();
        let mut first = Taker::spawn(TAKER, &url, "m", &[]);
        first.held().await;
        let mut second = Taker::spawn(TAKER, &url, "m", &[]);
        sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        first.release().await;
        second.held().await;
        assert!(begun.elapsed() < store.slack(), "{kind:?}");
    }
}

#[tokio::test]
async fn a_holder_that_stood_still_past_its_lease_says_lost_first() {
    let store = Backend::start(Kind::Redis).await;
    let url = store.url().unwrap();
    let mut stopped = Taker::spawn(TAKER, &url, "m", &["--ttl", "1500"]);
    stopped.held().await;
    stopped.pause();
    let begun = Instant::now();
    let client = store.client().await;
    let guard = within("the next", client.mutex("m").lock()).await.unwrap();
    let bound = Duration::from_millis(1_500) + store.slack();
    assert!(begun.elapsed() < bound);
    // Told to release while it stood still: it must not say that it released.
    stopped.tell_release().await;
    stopped.resume();
    assert_eq!(stopped.line().await, "lost");
    let mutex = client.mutex("m");
    assert_eq!(mutex.hold_count(guard.hold_id()).await.unwrap(), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_counts_from_before_its_request() {
    let store = Backend::start(Kind::Redis).await;
    let Backend::Redis(server) = &store else {
        unreachable!("it was asked for");
    };
    let client = store.client().await;
    let (ttl, silence) = (Duration::from_secs(20), Duration::from_secs(1));
    server.pause();
    let mutex = client.mutex("m").fixed_lease(ttl);
    let (guard, ()) = tokio::join!(mutex.lock(), async {
        sleep(silence).await;
        server.resume();
    });
    // The server counts from when it ran the request, the holder from when it asked.
    let guard = guard.unwrap();
    let left = guard.lease().remaining();
    assert!(left <= ttl - silence - ttl / 100, "{left:?}");
    assert!(mutex.remaining().await.unwrap().unwrap() > ttl - silence);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_grant_that_comes_after_its_lease_is_given_back_at_once() {
    let store = Backend::start(Kind::Redis).await;
    let Backend::Redis(server) = &store else {
        unreachable!("it was asked for");
    };
    let client = store.client().await;
    let (lease, silence) = (Duration::from_millis(1_500), Duration::from_millis(1_800));
    server.pause();
    let mutex = client.mutex("m").fixed_lease(lease);
    let (guard, resumed) = tokio::join!(mutex.lock(), async {
        sleep(silence).await;
        server.resume();
        Instant::now()
    });
    // The server has only begun to count: left alone, the first grant would last for a lease.
    let took = resumed.elapsed();
    assert!(took < lease * 2 / 3, "{took:?}");
    guard.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_stands_still_on_one_machine_keeps_the_lock() {
    let store = Backend::start(Kind::Local).await;
    let url = store.url().unwrap();
    let mut stopped = Taker::spawn(TAKER, &url, "m", &["--ttl", "900"]);
    let hold = stopped.held().await;
    stopped.pause();
    let client = store.client().await;
    let wait = Duration::from_millis(2_000);
    let taken = client.mutex("m").try_lock_for(wait).await.unwrap();
    assert!(taken.is_none());
    let status = client.mutex("m").status().await.unwrap().unwrap();
    assert_eq!(status.hold.as_str(), hold);
    stopped.resume();
    stopped.kill().await;
    assert!(takes_over(&client).await < Duration::from_secs(1));
}

#[tokio::test]
async fn a_waiter_that_is_killed_is_forgotten_by_the_next_client_that_opens() {
    let store = Backend::start(Kind::Local).await;
    let url = store.url().unwrap();
    let client = store.client().await;
    let guard = client.mutex("m").lock().await.unwrap();
    let waiter = Taker::spawn(TAKER, &url, "m", &[]);
    let dir = client.directory().unwrap();
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        path.is_file().then_some(path)
    };
    let lock_file = || std::fs::read_dir(dir).unwrap().find_map(file);
    leasehold_test::eventually("it listens", async || {
        let text = std::fs::read(lock_file().unwrap()).unwrap();
        String::from_utf8_lossy(&text).contains(".sock")
    })
    .await;
    waiter.pause();
    guard.release().await.unwrap();
    assert!(lock_file().is_some(), "the waiter is still in the table");
    waiter.kill().await;
    store.client().await;
    assert_eq!(lock_file(), None);
}

#[tokio::test]
async fn processes_killed_while_they_contend_leave_a_sound_directory() {
    let store = Backend::start(Kind::Local).await;
    let url = store.url().unwrap();
    let mut random = Random::seeded("processes_killed_while_they_contend");
    let spawn = || Taker::spawn(TAKER, &url, "m", &["--loop"]);
    let mut takers: Vec<_> = (0..4).map(|_| spawn()).collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        sleep(random.up_to(Duration::from_millis(60))).await;
        let index = usize::try_from(random.between(0, 4)).unwrap();
        std::mem::replace(&mut takers[index], spawn()).kill().await;
        // Readable at any moment, by anybody.
        let client = store.client().await;
        client.list("*").await.unwrap();
    }
    // Those that live go on.
    assert_eq!(spawn().line().await, "looping");
    for taker in takers {
        taker.kill().await;
    }
    let fresh = store.client().await;
    let took = takes_over(&fresh).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(fresh.list("*").await.unwrap(), []);
}
