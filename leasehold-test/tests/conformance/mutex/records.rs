//! Who holds: what a client says of itself.

use std::time::{Duration, SystemTime};

use leasehold::{Client, Holder};
use leasehold_test::{Backend, Kind};

const HOST: &str = "/proc/sys/kernel/hostname";

fn is_this_process(holder: &Holder, label: Option<&str>) {
    let host = std::fs::read_to_string(HOST).unwrap();
    assert_eq!(holder.host.as_deref(), Some(host.trim()));
    assert_eq!(holder.pid, Some(std::process::id()));
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(holder.program, Some(program.chars().take(64).collect()));
    assert_eq!(holder.label.as_deref(), label);
    let since = holder.since.unwrap();
    let ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    assert!(since > ago, "{since:?}");
}

pub(super) async fn a_holder_is_known_by_host_process_and_label(kind: Kind) {
    let store = Backend::start(kind).await;
    let named = store.build(Client::builder().label("night ly")).await;
    let other = store.client().await;
    assert_eq!(other.mutex("m").holders().await.unwrap(), []);
    let guard = named.mutex("m").lock().await.unwrap();
    let plain = other.mutex("n").lock().await.unwrap();
    let holders = other.mutex("m").holders().await.unwrap();
    assert_eq!(holders.len(), 1);
    assert_eq!(&holders[0].hold, guard.hold_id());
    assert_eq!(holders[0].count, 1);
    is_this_process(&holders[0], Some("night ly"));
    let status = other.mutex("n").status().await.unwrap().unwrap();
    is_this_process(&status.holder, None);
    let listed = other.list("*").await.unwrap();
    let names: Vec<_> = listed.iter().map(|status| status.name.as_str()).collect();
    assert_eq!(names, ["m", "n"], "records are no locks");
    is_this_process(&listed[0].holder, Some("night ly"));
    guard.release().await.unwrap();
    plain.release().await.unwrap();
}

pub(super) async fn a_closed_client_leaves_no_record(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    guard.release().await.unwrap();
    let records = store.records(&two).await;
    one.close().await;
    assert_eq!((records, store.records(&two).await), (2, 1));
}

pub(super) async fn a_hold_that_outlives_its_client_keeps_its_record(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let lease = Duration::from_secs(300);
    let mutex = one.mutex("m").fixed_lease(lease);
    let hold = mutex.lock().await.unwrap().forget();
    one.close().await;
    let holders = two.mutex("m").holders().await.unwrap();
    assert_eq!(holders[0].hold, hold);
    is_this_process(&holders[0], None);
    two.mutex("m").force_unlock().await.unwrap();
}

pub(super) async fn a_prefix_is_put_in_front_once_and_never_shown(kind: Kind) {
    let store = Backend::start(kind).await;
    let shop = store.build(Client::builder().prefix("shop:")).await;
    let all = store.client().await;
    let guard = shop.mutex("m").lock().await.unwrap();
    let other = all.mutex("m").lock().await.unwrap();
    // A client without it gets the same lock by the whole name.
    assert_eq!(
        all.mutex("shop:m")
            .hold_count(guard.hold_id())
            .await
            .unwrap(),
        1
    );
    let names = |found: Vec<leasehold::Status>| {
        let names = found.into_iter().map(|status| status.name);
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(shop.list("*").await.unwrap()), "m");
    assert_eq!(names(shop.list("m").await.unwrap()), "m");
    assert_eq!(names(shop.list("shop:*").await.unwrap()), "");
    assert_eq!(names(all.list("*").await.unwrap()), "m shop:m");
    let status = shop.mutex("m").status().await.unwrap().unwrap();
    assert_eq!((status.name.as_str(), &status.hold), ("m", guard.hold_id()));
    let waiter = {
        let mutex = all.mutex("shop:m");
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    };
    leasehold_test::eventually("it waits", async || {
        leasehold::testing::stats(&all).listening == 1
    })
    .await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    assert!(shop.mutex("m").force_unlock().await.unwrap());
    drop(guard);
    other.release().await.unwrap();
}

pub(super) async fn a_prefix_is_no_pattern_and_may_be_a_hash_tag(kind: Kind) {
    let store = Backend::start(kind).await;
    let star = store.build(Client::builder().prefix("a*?:")).await;
    let tag = store.build(Client::builder().prefix("{app}:")).await;
    let all = store.client().await;
    let guards = [
        star.mutex("m").lock().await.unwrap(),
        tag.mutex("m").lock().await.unwrap(),
        all.mutex("abc:n").lock().await.unwrap(),
    ];
    for client in [&star, &tag] {
        let found = client.list("*").await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "m");
    }
    assert!(all.mutex("{app}:m").is_locked().await.unwrap());
    for guard in guards {
        guard.release().await.unwrap();
    }
    // An empty name stays one, and a brace in the prefix does not excuse one in the name.
    for (client, name) in [(&tag, ""), (&star, "}{"), (&star, "{}x")] {
        let error = client.mutex(name).lock().await.unwrap_err();
        assert!(
            matches!(error, leasehold::Error::Config(_)),
            "{name}: {error:?}"
        );
    }
}
