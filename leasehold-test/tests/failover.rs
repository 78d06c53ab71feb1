//! An address that leads to another server from one moment to the next.

use std::time::Duration;

use leasehold::{Client, LeaseState};
use leasehold_test::{Relay, Server, within};
use tokio::time::{Instant, timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_follow_the_commands_to_another_server() {
    let (old, new) = (Server::start().await, Server::start().await);
    let relay = Relay::start(old.port()).await;
    let holder = Client::connect(&old.url()).await.unwrap();
    let _held = holder.mutex("x").lock().await.unwrap();
    let client = Client::connect(&relay.url()).await.unwrap();
    let mutex = client.mutex("x");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    let channel = ["PUBSUB", "NUMSUB", "redisson_lock__channel:{x}"];
    leasehold_test::eventually("it listens", async || {
        old.query::<(String, u64)>(&channel).await.1 == 1
    })
    .await;
    let moved = Instant::now();
    relay.point_at(new.port());
    // The connection for commands is the first; that for the subscriptions stays as it is.
    relay.cut(0);
    let guard = within("the wait", waiter).await.unwrap();
    assert!(
        moved.elapsed() < Duration::from_secs(5),
        "{:?}",
        moved.elapsed()
    );
    assert_eq!(new.keys().await, ["x"]);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_lost_when_its_address_leads_to_a_server_without_it() {
    let (old, new) = (Server::start().await, Server::start().await);
    let relay = Relay::start(old.port()).await;
    let client = Client::connect(&relay.url()).await.unwrap();
    let guard = client.mutex("x").lock().await.unwrap();
    assert_eq!(guard.lease().state(), LeaseState::Held);
    relay.point_at(new.port());
    relay.cut(0);
    let told = timeout(Duration::from_secs(5), guard.lost()).await;
    told.expect("the hold is looked at as soon as the client is connected again");
    assert!(new.keys().await.is_empty(), "a lost hold was made again");
}
