//! Hours of leases in no time: the mutex on the memory store, under a paused clock.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::time::Duration;

use leasehold::testing::{self, stats};
use leasehold::{Backoff, Client, Error, LeaseState, Memory, Wait};
use tokio::time::{Instant, advance, sleep};

const SECOND: Duration = Duration::from_secs(1);

fn two_clients() -> (Client, Client) {
    let memory = Memory::new();
    let client = || Client::builder().memory(&memory);
    (client(), client())
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_thirty_seconds_is_held_for_three_hundred() {
    let (one, two) = two_clients();
    let guard = one.mutex("m").lock().await.unwrap();
    for second in 0..300 {
        let left = two.mutex("m").remaining().await.unwrap().unwrap();
        assert!(
            left > 19 * SECOND && left <= 30 * SECOND,
            "{second} {left:?}"
        );
        assert_eq!(guard.lease().state(), LeaseState::Held, "{second}");
        sleep(SECOND).await;
    }
    let batches = stats(&one).renewal_batches;
    assert!((29..=31).contains(&batches), "{batches}");
    guard.release().await.unwrap();
    assert!(!two.mutex("m").is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_three_hundred_seconds_is_woken_once() {
    let (one, two) = two_clients();
    let guard = one.mutex("m").lock().await.unwrap();
    let mutex = two.mutex("m");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    sleep(300 * SECOND).await;
    // The lease is renewed, so each look at its end finds a new end: one look per lease.
    let looks = stats(&two).woken_by_timer;
    assert!((9..=16).contains(&looks), "{looks}");
    let released = Instant::now();
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    assert_eq!(released.elapsed(), Duration::ZERO);
    assert_eq!(stats(&two).woken_by_message, 1);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_to_the_millisecond() {
    let (one, two) = two_clients();
    let lease = 30 * SECOND;
    let begun = Instant::now();
    let guard = one.mutex("m").fixed_lease(lease).lock().await.unwrap();
    let (holder, ()) = tokio::join!(
        async {
            guard.lost().await;
            begun.elapsed()
        },
        async {
            let next = two.mutex("m").lock().await.unwrap();
            let took = begun.elapsed();
            assert!(took >= lease, "{took:?}");
            assert!(took <= lease + Duration::from_millis(2), "{took:?}");
            next.release().await.unwrap();
        }
    );
    let relied = lease - lease / 100 - Duration::from_millis(2);
    assert!(holder >= relied, "{holder:?}");
    assert!(holder <= relied + Duration::from_millis(2), "{holder:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_clock_that_jumped_is_lost_before_anything_else() {
    let (one, two) = two_clients();
    let guard = one.mutex("m").lock().await.unwrap();
    // As after a suspend: no task ran, and the lease is over.
    advance(31 * SECOND).await;
    assert_eq!(guard.lease().state(), LeaseState::Lost);
    let next = two.mutex("m").try_lock().await.unwrap().unwrap();
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    let seen = two.mutex("m").status().await.unwrap().unwrap();
    assert_eq!(&seen.hold, next.hold_id());
}

#[tokio::test(start_paused = true)]
async fn renewal_ends_at_the_longest_hold_and_the_lease_one_ttl_later() {
    let (one, _) = two_clients();
    let mutex = one.mutex("m").max_hold(60 * SECOND);
    let begun = Instant::now();
    let guard = mutex.lock().await.unwrap();
    guard.lost().await;
    let held = begun.elapsed();
    assert!(held > 60 * SECOND && held <= 90 * SECOND, "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn a_removed_lock_is_lost_at_the_next_renewal() {
    let (one, _) = two_clients();
    let guard = one.mutex("m").lock().await.unwrap();
    sleep(4 * SECOND).await;
    assert!(testing::delete(&one, "m").unwrap());
    let removed = Instant::now();
    guard.lost().await;
    let took = removed.elapsed();
    assert!(took <= 6 * SECOND + Duration::from_millis(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bounded_try_ends_to_the_millisecond() {
    let (one, two) = two_clients();
    let _guard = one.mutex("m").lock().await.unwrap();
    let begun = Instant::now();
    let got = two.mutex("m").try_lock_for(100 * SECOND).await.unwrap();
    assert!(got.is_none());
    let took = begun.elapsed();
    let bound = 100 * SECOND + Duration::from_millis(2);
    assert!(took >= 100 * SECOND && took <= bound, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_polling_waiter_asks_at_its_pauses() {
    let (one, two) = two_clients();
    let guard = one.mutex("m").lock().await.unwrap();
    let wait = Wait::Poll(Backoff::constant(10 * SECOND));
    let mutex = two.mutex("m").wait(wait);
    let begun = Instant::now();
    let (next, ()) = tokio::join!(mutex.lock(), async {
        sleep(15 * SECOND).await;
        guard.release().await.unwrap();
    });
    next.unwrap().release().await.unwrap();
    let took = begun.elapsed();
    let bound = 20 * SECOND + Duration::from_millis(5);
    assert!(took >= 20 * SECOND && took <= bound, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn many_holds_are_renewed_a_hundred_to_a_batch() {
    let (one, two) = two_clients();
    let mut guards = vec![];
    for number in 0..1_000 {
        let mutex = one.mutex(&format!("m:{number}"));
        guards.push(mutex.lock().await.unwrap());
    }
    sleep(300 * SECOND).await;
    let batches = stats(&one).renewal_batches;
    assert!(batches <= 10 * 31, "{batches}");
    assert_eq!(two.list("*").await.unwrap().len(), 1_000);
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(two.list("*").await.unwrap(), []);
    assert_eq!(stats(&one).watched, 0);
}

#[tokio::test(start_paused = true)]
async fn a_loss_just_before_the_renewal_reply_is_not_healed_by_it() {
    let (one, two) = two_clients();
    let guard = one.mutex("m").lock().await.unwrap();
    assert!(testing::delete(&one, "m").unwrap());
    let next = two.mutex("m").lock().await.unwrap();
    sleep(11 * SECOND).await;
    assert_eq!(guard.lease().state(), LeaseState::Lost);
    assert_eq!(next.lease().state(), LeaseState::Held);
    drop(guard);
    sleep(300 * SECOND).await;
    assert_eq!(next.lease().state(), LeaseState::Held);
    next.release().await.unwrap();
}

#[tokio::test]
async fn an_unknown_scheme_is_refused() {
    for url in ["", "m", "http://127.0.0.1/", "REDIS", "redis", "/tmp"] {
        let refused = Client::connect(url).await;
        assert!(matches!(refused, Err(Error::Config(_))), "{url:?}");
    }
    for timeout in [Duration::ZERO, Duration::MAX] {
        let refused = [
            Client::builder()
                .call_timeout(timeout)
                .connect("local:")
                .await,
            Client::builder()
                .connect_timeout(timeout)
                .connect("local:")
                .await,
            Client::builder()
                .response_timeout(timeout)
                .connect("local:")
                .await,
        ];
        for answer in refused {
            assert!(matches!(answer, Err(Error::Config(_))));
        }
    }
}
