//! PS: subscriptions that come late, or never. On the memory store, where they can be held back
//! and the clock stands still.

use std::time::Duration;

use leasehold::{Client, Memory, testing};
use tokio::time::Instant;

const MOMENT: Duration = Duration::from_millis(10);

fn two_clients() -> (Client, Client) {
    let memory = Memory::new();
    (
        Client::builder().memory(&memory),
        Client::builder().memory(&memory),
    )
}

#[tokio::test(start_paused = true)]
async fn ps_01_a_release_before_the_subscription_is_found_with_it() {
    let (a, b) = two_clients();
    let guard = a
        .mutex("x")
        .fixed_lease(Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    testing::hold_back_subscriptions(&b, true).unwrap();
    let waiting = b.mutex("x");
    let waiter = tokio::spawn(async move { waiting.lock().await.unwrap() });
    tokio::time::sleep(MOMENT).await;
    guard.release().await.unwrap();
    tokio::time::sleep(MOMENT).await;
    assert!(!waiter.is_finished(), "nobody told the waiter yet");
    let confirmed = Instant::now();
    testing::hold_back_subscriptions(&b, false).unwrap();
    let _guard = waiter.await.unwrap();
    assert_eq!(confirmed.elapsed(), Duration::ZERO);
    assert_eq!(testing::stats(&b).woken_by_timer, 0);
}

/// The same with a store that confirms at once: what lies between the try and the subscription
/// must be found all the same.
#[tokio::test(start_paused = true)]
async fn ps_01_a_release_on_the_way_of_the_reply_is_found() {
    let (a, b) = two_clients();
    let _held = a
        .mutex("x")
        .fixed_lease(Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    let begun = Instant::now();
    let operator = a.clone();
    testing::meanwhile(&b, move || assert!(testing::free(&operator, "x").unwrap())).unwrap();
    let _guard = b.mutex("x").lock().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// The same with a subscription that is confirmed while a try is on its way.
#[tokio::test(start_paused = true)]
async fn ps_01_a_release_before_a_confirmation_during_a_try_is_found() {
    let (a, b) = two_clients();
    let _held = a
        .mutex("x")
        .fixed_lease(Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    testing::hold_back_subscriptions(&b, true).unwrap();
    let waiting = b.mutex("x");
    let waiter = tokio::spawn(async move { waiting.lock().await.unwrap() });
    tokio::time::sleep(MOMENT).await;
    let (operator, confirmed) = (a.clone(), b.clone());
    // Without a confirmation, the waiter looks again after a second.
    testing::meanwhile(&b, move || {
        assert!(testing::free(&operator, "x").unwrap());
        testing::hold_back_subscriptions(&confirmed, false).unwrap();
    })
    .unwrap();
    let begun = Instant::now();
    let _guard = waiter.await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn ps_04_one_look_needs_no_subscription() {
    let (a, b) = two_clients();
    let _held = a.mutex("x").lock().await.unwrap();
    testing::hold_back_subscriptions(&b, true).unwrap();
    let begun = Instant::now();
    for _ in 0..1000 {
        assert!(b.mutex("x").try_lock().await.unwrap().is_none());
        assert!(
            b.mutex("x")
                .try_lock_for(Duration::ZERO)
                .await
                .unwrap()
                .is_none()
        );
        assert_eq!(testing::stats(&b).listening, 0, "a look subscribed");
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let limit = Duration::from_millis(200);
    assert!(b.mutex("x").try_lock_for(limit).await.unwrap().is_none());
    let waited = begun.elapsed();
    assert!(waited >= limit && waited < limit + MOMENT, "{waited:?}");
    assert_eq!(testing::stats(&b).listening, 0, "a listener was left");
}

#[tokio::test(start_paused = true)]
async fn ps_07_a_waiter_that_gives_up_spoils_nothing_for_the_next() {
    let (a, b) = two_clients();
    let held = a
        .mutex("x")
        .fixed_lease(Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    testing::hold_back_subscriptions(&b, true).unwrap();
    let begun = Instant::now();
    let wait = |limit| {
        let mutex = b.mutex("x");
        tokio::spawn(async move { mutex.try_lock_for(limit).await.unwrap() })
    };
    let first = wait(Duration::from_millis(20));
    tokio::time::sleep(MOMENT).await;
    let (second, third) = (wait(Duration::from_secs(5)), wait(Duration::from_secs(5)));
    assert!(first.await.unwrap().is_none());
    let gave_up = begun.elapsed();
    assert!(gave_up >= Duration::from_millis(20) && gave_up < Duration::from_millis(22));
    tokio::time::sleep(Duration::from_millis(200)).await;
    testing::hold_back_subscriptions(&b, false).unwrap();
    tokio::time::sleep_until(begun + Duration::from_secs(1)).await;
    held.release().await.unwrap();
    second
        .await
        .unwrap()
        .expect("the second waiter has it")
        .release()
        .await
        .unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(1010),
        "{:?}",
        begun.elapsed()
    );
    third
        .await
        .unwrap()
        .expect("the third waiter has it")
        .release()
        .await
        .unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(1020),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(testing::stats(&b).listening, 0);
}
