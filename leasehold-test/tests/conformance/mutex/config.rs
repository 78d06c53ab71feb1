//! Bad input is told before anything is sent.

use std::time::Duration;

use leasehold::testing::stats;
use leasehold::{Backoff, Client, Error, Mutex, Wait};
use leasehold_test::{Backend, Kind};

const NAMES: [&str; 7] = ["", "{", "{x", "{}x", "a}b", "}{", "{}{a}"];

/// Settings that cannot work.
fn bad_mutexes(client: &Client) -> Vec<Mutex> {
    let zero = Duration::ZERO;
    let (ms, second) = (Duration::from_millis(1), Duration::from_secs(1));
    let good = || client.mutex("m");
    let poll = |first, most, factor| {
        let backoff = Backoff::exponential(first, most, factor);
        good().wait(Wait::Poll(backoff))
    };
    let mut bad: Vec<_> = NAMES.iter().map(|name| client.mutex(name)).collect();
    for lease in [zero, Duration::from_nanos(1), 9 * ms, Duration::MAX] {
        bad.push(good().fixed_lease(lease));
    }
    // The largest number of milliseconds that a signed and an unsigned word hold.
    for millis in [i64::MAX.unsigned_abs(), u64::MAX] {
        bad.push(good().fixed_lease(Duration::from_millis(millis)));
        bad.push(good().ttl(Duration::from_millis(millis)));
    }
    for ttl in [zero, ms, 149 * ms, Duration::MAX] {
        bad.push(good().ttl(ttl));
    }
    bad.push(good().fixed_lease(second).max_hold(second));
    bad.push(good().max_hold(zero));
    bad.push(good().outage(zero));
    bad.push(poll(zero, second, 2));
    bad.push(poll(2 * second, second, 2));
    bad.push(poll(ms, second, 0));
    bad.push(poll(ms, 4_000 * second, 2));
    bad
}

pub(super) async fn bad_input_is_refused_before_anything_is_sent(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let before = store.scripts_run().await;
    for mutex in bad_mutexes(&client) {
        let answers = [
            mutex.lock().await.err(),
            mutex.try_lock().await.err(),
            mutex.try_lock_for(Duration::from_secs(1)).await.err(),
            mutex.with(async |_| ()).await.err(),
        ];
        for answer in answers {
            assert!(matches!(answer, Some(Error::Config(_))), "{mutex:?}");
        }
    }
    for name in NAMES {
        let mutex = client.mutex(name);
        let answers = [
            mutex.force_unlock().await.err(),
            mutex.status().await.err(),
            mutex.remaining().await.err(),
        ];
        for answer in answers {
            assert!(matches!(answer, Some(Error::Config(_))), "{name:?}");
        }
    }
    assert_eq!(store.scripts_run().await, before);
    let seen = stats(&client);
    assert_eq!((seen.listening, seen.lines, seen.owed), (0, 0, 0));
    assert_eq!(client.list("*").await.unwrap(), []);
}

pub(super) async fn a_hundred_years_are_a_lease(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let mutex = client.mutex("m").fixed_lease(century);
    let guard = mutex.lock().await.unwrap();
    let left = mutex.remaining().await.unwrap().unwrap();
    assert!(left <= century && left > century - Duration::from_secs(60));
    let wait = Duration::from_millis(50);
    assert!(mutex.try_lock_for(wait).await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = client.mutex("m").ttl(century).lock().await.unwrap();
    guard.release().await.unwrap();
    assert!(!mutex.is_locked().await.unwrap());
}
