//! How long holds last.

use std::time::Duration;

use leasehold::testing::stats;
use leasehold::{Error, LeaseState};
use leasehold_test::{Backend, Kind};
use tokio::time::Instant;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) async fn a_fixed_lease_ends_by_itself(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let begun = Instant::now();
    let guard = one.mutex("m").fixed_lease(ms(300)).lock().await.unwrap();
    let lease = guard.lease();
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(lease.remaining() <= ms(300) - ms(3) - ms(2));
    let next = two.mutex("m").lock().await.unwrap();
    assert_eq!(lease.state(), LeaseState::Lost, "others can have it");
    guard.lost().await;
    assert!(begun.elapsed() > ms(295));
    assert!(begun.elapsed() < ms(300) + store.slack());
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    assert_eq!(two.mutex("m").hold_count(next.hold_id()).await.unwrap(), 1);
}

pub(super) async fn a_fixed_lease_is_not_renewed(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let guard = client.mutex("m").fixed_lease(ms(900)).lock().await.unwrap();
    tokio::time::sleep(ms(500)).await;
    let left = client.mutex("m").remaining().await.unwrap().unwrap();
    assert!(left <= ms(400), "{left:?}");
    guard.release().await.unwrap();
}

pub(super) async fn a_late_release_says_lost_and_spares_the_successor(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let late = one.mutex("m").fixed_lease(ms(200)).lock().await.unwrap();
    let next = two.mutex("m").fixed_lease(ms(60_000)).lock().await.unwrap();
    let before = two.mutex("m").status().await.unwrap().unwrap();
    assert!(matches!(late.release().await, Err(Error::Lost(_))));
    drop(one.mutex("m").try_lock().await.unwrap());
    one.close().await;
    let after = two.mutex("m").status().await.unwrap().unwrap();
    assert_eq!((&after.hold, after.count), (next.hold_id(), 1));
    let aged = before.remaining.unwrap() - after.remaining.unwrap();
    assert!(aged < ms(5_000), "{aged:?}");
    next.release().await.unwrap();
}

pub(super) async fn a_renewed_lease_outlives_its_ttl(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").ttl(ms(900)).lock().await.unwrap();
    let wait = two.mutex("m").try_lock_for(ms(2_500)).await.unwrap();
    assert!(wait.is_none());
    assert_eq!(guard.lease().state(), LeaseState::Held);
    assert!(stats(&one).renewal_batches >= 4);
    guard.release().await.unwrap();
}

pub(super) async fn renewal_stops_at_the_longest_hold(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").ttl(ms(600)).max_hold(ms(900));
    let begun = Instant::now();
    let guard = mutex.lock().await.unwrap();
    guard.lost().await;
    let took = begun.elapsed();
    assert!(took > ms(900), "{took:?}");
    assert!(took < ms(900 + 600) + store.slack(), "{took:?}");
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
}

pub(super) async fn an_extension_prolongs_and_never_shortens(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").fixed_lease(ms(5_000));
    let guard = mutex.lock().await.unwrap();
    guard.extend(ms(60_000)).await.unwrap();
    let left = mutex.remaining().await.unwrap().unwrap();
    assert!(left > ms(50_000) && left <= ms(60_000), "{left:?}");
    assert!(guard.lease().remaining() > ms(50_000));
    guard.extend(ms(100)).await.unwrap();
    assert!(mutex.remaining().await.unwrap().unwrap() > ms(50_000));
    assert!(guard.lease().remaining() > ms(50_000));
    guard.release().await.unwrap();
}

pub(super) async fn a_renewed_lease_is_not_extended_by_hand(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let guard = client.mutex("m").lock().await.unwrap();
    let refused = guard.extend(ms(60_000)).await;
    assert!(matches!(refused, Err(Error::Config(_))));
    let fixed = client.mutex("f").fixed_lease(ms(60_000)).lock().await;
    let refused = fixed.unwrap().extend(Duration::ZERO).await;
    assert!(matches!(refused, Err(Error::Config(_))));
}

pub(super) async fn an_extension_after_the_loss_says_lost(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let guard = client.mutex("m").fixed_lease(ms(60_000)).lock().await;
    let guard = guard.unwrap();
    store.remove("m").await;
    let refused = guard.extend(ms(60_000)).await;
    assert!(matches!(refused, Err(Error::Lost(_))));
    guard.lost().await;
    assert!(!client.mutex("m").is_locked().await.unwrap());
    let short = client.mutex("s").fixed_lease(ms(100)).lock().await.unwrap();
    short.lost().await;
    assert!(matches!(short.extend(ms(1_000)).await, Err(Error::Lost(_))));
}

pub(super) async fn a_forgotten_hold_lives_by_its_ttl(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let begun = Instant::now();
    let guard = one.mutex("m").ttl(ms(900)).lock().await.unwrap();
    let other = guard.reenter();
    let hold = guard.forget();
    drop(other);
    assert_eq!(stats(&one).watched, 0);
    one.close().await;
    let status = two.mutex("m").status().await.unwrap().unwrap();
    assert_eq!(status.hold, hold);
    let guard = two.mutex("m").lock().await.unwrap();
    let took = begun.elapsed();
    assert!(took > ms(890) && took < ms(900) + store.slack(), "{took:?}");
    guard.release().await.unwrap();
}

pub(super) async fn the_last_guard_of_a_hold_releases_it(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m");
    let first = mutex.lock().await.unwrap();
    let before = store.scripts_run().await;
    let second = first.reenter();
    let third = second.reenter();
    assert_eq!(second.hold_id(), first.hold_id());
    first.release().await.unwrap();
    drop(third);
    assert_eq!(store.scripts_run().await, before, "re-entry sends nothing");
    assert_eq!(mutex.hold_count(second.hold_id()).await.unwrap(), 1);
    assert!(mutex.try_lock().await.unwrap().is_none());
    second.release().await.unwrap();
    assert!(!mutex.is_locked().await.unwrap());
}

pub(super) async fn a_deep_re_entry_ends_with_its_last_guard(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let mut guards = vec![one.mutex("m").lock().await.unwrap()];
    for depth in 0..999 {
        let next = guards[depth].reenter();
        guards.push(next);
    }
    let last = guards.pop().unwrap();
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert!(two.mutex("m").try_lock().await.unwrap().is_none());
    last.release().await.unwrap();
    assert!(two.mutex("m").try_lock().await.unwrap().is_some());
}

pub(super) async fn nothing_is_renewed_after_a_release(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").ttl(ms(900));
    // Rounds of various lengths, so that some releases meet a renewal on its way.
    for round in 0..20 {
        let guard = mutex.lock().await.unwrap();
        tokio::time::sleep(ms(290 + round)).await;
        let released = guard.release().await;
        released.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(stats(&client).watched, 0);
        assert!(!mutex.is_locked().await.unwrap());
    }
    let sent = stats(&client).renewal_batches;
    tokio::time::sleep(ms(950)).await;
    assert_eq!(stats(&client).renewal_batches, sent);
    assert!(!mutex.is_locked().await.unwrap());
}

pub(super) async fn a_lease_tells_when_it_is_about_to_end(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let begun = Instant::now();
    let guard = client.mutex("m").fixed_lease(ms(600)).lock().await.unwrap();
    guard.lease().ends_within(ms(300)).await;
    let took = begun.elapsed();
    assert!(took > ms(250) && took < ms(590), "{took:?}");
    let left = guard.lease().remaining();
    assert!(left <= ms(300) && !left.is_zero(), "{left:?}");
    guard.release().await.unwrap();
}

pub(super) async fn settings_of_one_handle_do_not_leak_into_another(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m");
    let fixed = mutex.clone().fixed_lease(ms(90_000));
    fixed.lock().await.unwrap().release().await.unwrap();
    let guard = mutex.lock().await.unwrap();
    let left = mutex.remaining().await.unwrap().unwrap();
    assert!(left > ms(20_000) && left <= ms(30_000), "{left:?}");
    guard.release().await.unwrap();
    // The last of the two setters wins.
    let last = mutex.clone().fixed_lease(ms(90_000)).ttl(ms(10_000));
    let guard = last.lock().await.unwrap();
    let refused = guard.extend(ms(60_000)).await;
    assert!(matches!(refused, Err(Error::Config(_))));
    assert!(mutex.remaining().await.unwrap().unwrap() <= ms(10_000));
}
