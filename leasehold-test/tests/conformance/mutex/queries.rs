//! What can be asked about locks, and names that are no locks.

use std::time::Duration;

use leasehold::{Client, Error};
use leasehold_test::{Backend, Kind};

pub(super) async fn a_status_tells_hold_count_and_time_left(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let mutex = two.mutex("m");
    let status = mutex.status().await.unwrap().unwrap();
    assert_eq!(status.name, "m");
    assert_eq!(&status.hold, guard.hold_id());
    assert_eq!(status.count, 1);
    let left = status.remaining.unwrap();
    let whole = Duration::from_secs(30);
    assert!(left > whole - Duration::from_secs(10) && left <= whole);
    assert!(mutex.is_locked().await.unwrap());
    assert!(mutex.remaining().await.unwrap().unwrap() <= left);
    assert_eq!(mutex.hold_count(guard.hold_id()).await.unwrap(), 1);
    guard.release().await.unwrap();
}

pub(super) async fn a_free_lock_has_no_status(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m");
    let guard = mutex.lock().await.unwrap();
    let hold = guard.hold_id().clone();
    guard.release().await.unwrap();
    assert_eq!(mutex.status().await.unwrap(), None);
    assert!(!mutex.is_locked().await.unwrap());
    assert_eq!(mutex.remaining().await.unwrap(), None);
    assert_eq!(mutex.hold_count(&hold).await.unwrap(), 0);
    let other = client.mutex("n").lock().await.unwrap();
    assert_eq!(client.mutex("n").hold_count(&hold).await.unwrap(), 0);
    other.release().await.unwrap();
}

pub(super) async fn a_list_has_the_names_that_match(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let mut guards = vec![];
    for name in ["b:1", "a:1", "a:2", "a:10", "c:{x}"] {
        guards.push(one.mutex(name).lock().await.unwrap());
    }
    for (pattern, names) in [
        ("*", &["a:1", "a:10", "a:2", "b:1", "c:{x}"][..]),
        ("a:*", &["a:1", "a:10", "a:2"]),
        ("a:?", &["a:1", "a:2"]),
        ("?:1", &["a:1", "b:1"]),
        ("c:{x}", &["c:{x}"]),
        ("b:1", &["b:1"]),
        ("none", &[]),
    ] {
        let found = two.list(pattern).await.unwrap();
        let found: Vec<_> = found.iter().map(|status| status.name.as_str()).collect();
        assert_eq!(found, names, "{pattern}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(two.list("*").await.unwrap(), []);
}

pub(super) async fn a_key_of_another_type_is_refused_and_left_alone(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    store.plant("m", "somebody's text").await;
    let mutex = client.mutex("m");
    let protocol = |error: Option<Error>| assert!(matches!(error, Some(Error::Protocol(_))));
    protocol(mutex.lock().await.err());
    protocol(mutex.try_lock().await.err());
    protocol(mutex.try_lock_for(Duration::from_secs(5)).await.err());
    protocol(mutex.force_unlock().await.err());
    protocol(mutex.status().await.err());
    protocol(mutex.is_locked().await.err());
    left_alone(&store, &client).await;
}

async fn left_alone(store: &Backend, client: &Client) {
    match store {
        Backend::Redis(server) => {
            let text: String = server.query(&["GET", "m"]).await;
            assert_eq!(text, "somebody's text");
        }
        _ => assert!(leasehold::testing::delete(client, "m").unwrap()),
    }
    let seen = leasehold::testing::stats(client);
    assert_eq!((seen.listening, seen.lines, seen.owed), (0, 0, 0));
}

pub(super) async fn a_list_passes_over_other_keys(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    store.plant("a", "text").await;
    let guard = client.mutex("b").lock().await.unwrap();
    let found = client.list("*").await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "b");
    guard.release().await.unwrap();
}

pub(super) async fn a_key_that_became_another_type_is_a_loss(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let ttl = Duration::from_millis(900);
    let odd = client.mutex("odd").ttl(ttl).lock().await.unwrap();
    let sound = client.mutex("sound").ttl(ttl).lock().await.unwrap();
    store.plant("odd", "text").await;
    let lost = tokio::time::timeout(ttl / 3 + store.slack(), odd.lost()).await;
    lost.expect("the next renewal tells");
    tokio::time::sleep(2 * ttl).await;
    sound.release().await.unwrap();
    assert!(matches!(odd.release().await, Err(Error::Lost(_))));
}
