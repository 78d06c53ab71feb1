//! How waiters get the lock, and what they leave when they go.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::testing::{Stats, stats};
use leasehold::{Backoff, Client, MutexGuard, Wait};
use leasehold_test::{Backend, Kind, Random, eventually};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A waiter on `m` that listens already, so that the next release must wake it.
async fn listening_waiter(client: &Client) -> JoinHandle<MutexGuard> {
    let before = stats(client).listening;
    let mutex = client.mutex("m");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    listens(client, before + 1).await;
    waiter
}

/// A subscription is live a moment after it is made: a second try follows, then sleep.
async fn listens(client: &Client, channels: usize) {
    eventually("it listens", async || stats(client).listening == channels).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn no_timer_woke(client: &Client) {
    let Stats {
        woken_by_timer,
        woken_by_gap,
        ..
    } = stats(client);
    assert_eq!((woken_by_timer, woken_by_gap), (0, 0));
}

/// Nothing of any waiter is left in the client.
fn nothing_is_left(client: &Client) {
    let seen = stats(client);
    let left = (seen.watched, seen.listening, seen.lines, seen.owed);
    assert_eq!(left, (0, 0, 0, 0), "{seen:?}");
}

pub(super) async fn a_waiter_is_woken_by_a_release(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let waiter = listening_waiter(&two).await;
    let begun = Instant::now();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(stats(&two).woken_by_message, 1);
    no_timer_woke(&two);
    guard.release().await.unwrap();
    nothing_is_left(&two);
}

pub(super) async fn a_waiter_of_the_same_client_is_woken_by_a_release(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let guard = client.mutex("m").lock().await.unwrap();
    let waiter = listening_waiter(&client).await;
    let begun = Instant::now();
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    no_timer_woke(&client);
    nothing_is_left(&client);
}

pub(super) async fn a_dropped_guard_frees_and_wakes(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let waiter = listening_waiter(&two).await;
    let begun = Instant::now();
    drop(guard);
    let guard = waiter.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    no_timer_woke(&two);
    let probe = one.clone();
    assert_eq!(one.close().await.released, 1);
    nothing_is_left(&probe);
    drop(guard);
}

pub(super) async fn the_end_of_a_lease_wakes_a_waiter(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let lease = Duration::from_millis(400);
    let begun = Instant::now();
    let guard = one.mutex("m").fixed_lease(lease).lock().await.unwrap();
    let _left_alone = guard.forget();
    let guard = two.mutex("m").lock().await.unwrap();
    let took = begun.elapsed();
    assert!(took >= lease - Duration::from_millis(5), "{took:?}");
    assert!(took < lease + store.slack(), "{took:?}");
    guard.release().await.unwrap();
}

pub(super) async fn an_uncontended_lock_never_listens(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let before = store.scripts_run().await;
    for _ in 0..20 {
        let guard = client.mutex("m").lock().await.unwrap();
        assert_eq!(stats(&client).listening, 0);
        guard.release().await.unwrap();
    }
    if let (Some(before), Some(after)) = (before, store.scripts_run().await) {
        assert_eq!(after - before, 40, "one command to lock, one to release");
    }
    nothing_is_left(&client);
}

pub(super) async fn waiters_of_one_client_go_in_order_on_one_subscription(kind: Kind) {
    const WAITERS: usize = 50;
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = vec![];
    for number in 0..WAITERS {
        let (mutex, order) = (two.mutex("m"), Arc::clone(&order));
        waiters.push(tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        // Each is in line before the next: on this thread a yield lets it run up to its wait.
        tokio::task::yield_now().await;
    }
    listens(&two, 1).await;
    assert_eq!((stats(&two).listening, stats(&two).lines), (1, 1));
    if let Backend::Redis(server) = &store {
        let channel = "redisson_lock__channel:{m}";
        let subscribers: (String, u64) = server.query(&["PUBSUB", "NUMSUB", channel]).await;
        assert_eq!(subscribers.1, 1);
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    no_timer_woke(&two);
    nothing_is_left(&two);
}

pub(super) async fn a_polling_waiter_gets_the_lock_without_listening(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let backoff = Backoff::constant(Duration::from_millis(10));
    let mutex = two.mutex("m").wait(Wait::Poll(backoff));
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    eventually("it waits", async || stats(&two).lines == 1).await;
    assert_eq!(stats(&two).listening, 0);
    let begun = Instant::now();
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    assert!(begun.elapsed() < store.slack());
    nothing_is_left(&two);
}

pub(super) async fn a_waiter_that_gave_up_does_not_hurt_the_next(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    for _ in 0..5 {
        let wait = Duration::from_millis(20);
        assert!(two.mutex("m").try_lock_for(wait).await.unwrap().is_none());
        nothing_is_left(&two);
    }
    let waiter = listening_waiter(&two).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    no_timer_woke(&two);
    nothing_is_left(&two);
}

pub(super) async fn a_waiter_that_left_hands_on_its_turn(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let first = listening_waiter(&two).await;
    let mutex = two.mutex("m");
    let second = tokio::spawn(async move { mutex.lock().await.unwrap() });
    tokio::task::yield_now().await;
    // The announcement may reach the first just as it leaves: the second must get the lock.
    guard.release().await.unwrap();
    first.abort();
    let begun = Instant::now();
    if let Ok(guard) = first.await {
        guard.release().await.unwrap();
    }
    second.await.unwrap().release().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
    let probe = two.clone();
    two.close().await;
    nothing_is_left(&probe);
    assert!(!one.mutex("m").is_locked().await.unwrap());
}

pub(super) async fn a_try_passes_the_waiters_by(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let waiter = listening_waiter(&two).await;
    let begun = Instant::now();
    assert!(two.mutex("m").try_lock().await.unwrap().is_none());
    assert!(begun.elapsed() < Duration::from_secs(1));
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

pub(super) async fn a_dropped_lock_future_leaves_nothing(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let mut random = Random::seeded("a_dropped_lock_future_leaves_nothing");
    for round in 0..60 {
        // Every other round the lock is busy, so that a waiter is dropped.
        let guard = match round % 2 {
            0 => None,
            _ => Some(one.mutex("m").lock().await.unwrap()),
        };
        let mutex = two.mutex("m");
        let soon = random.up_to(Duration::from_millis(3));
        let taken = tokio::time::timeout(soon, mutex.lock()).await;
        if let Ok(got) = taken {
            assert!(guard.is_none());
            got.unwrap().release().await.unwrap();
        }
        if let Some(guard) = guard {
            guard.release().await.unwrap();
        }
        eventually("nothing is owed", async || stats(&two).owed == 0).await;
        nothing_is_left(&two);
        let free = one.mutex("m").try_lock().await.unwrap();
        free.expect("nobody holds").release().await.unwrap();
    }
}

pub(super) async fn a_dropped_release_future_still_releases(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let mut random = Random::seeded("a_dropped_release_future_still_releases");
    for _ in 0..30 {
        let guard = one.mutex("m").lock().await.unwrap();
        let soon = random.up_to(Duration::from_millis(1));
        let _ = tokio::time::timeout(soon, guard.release()).await;
        let wait = Duration::from_secs(5);
        let guard = two.mutex("m").try_lock_for(wait).await.unwrap();
        guard.expect("it was released").release().await.unwrap();
    }
}

pub(super) async fn a_release_during_the_subscription_is_not_missed(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let mut random = Random::seeded("a_release_during_the_subscription_is_not_missed");
    for _ in 0..60 {
        let guard = one.mutex("m").lock().await.unwrap();
        let pause = random.up_to(Duration::from_millis(2));
        let mutex = two.mutex("m");
        let release = async {
            tokio::time::sleep(pause).await;
            guard.release().await.unwrap();
        };
        let begun = Instant::now();
        let (got, ()) = tokio::join!(mutex.lock(), release);
        assert!(begun.elapsed() < Duration::from_secs(5));
        got.unwrap().release().await.unwrap();
    }
    no_timer_woke(&two);
}
