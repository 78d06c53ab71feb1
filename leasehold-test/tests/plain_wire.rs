//! The plain format, beside a client that keeps locks as redsync does, on one server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail as tests do"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::testing::{self, Call, stats};
use leasehold::{Client, Error, HoldId, LeaseState, Mutex, Wire};
use leasehold_test::server::ask;
use leasehold_test::{Server, eventually, within};
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

const CHANNEL: &str = "leasehold_plain:{m}";

/// Frees the lock if it has the value: 1; -1 if there is none, 0 if it is another's.
const RELEASE: &str = "
local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then
    return redis.call('DEL', KEYS[1])
elseif value == false then
    return -1
end
return 0";
/// Lets the lock last from now, if it has the value.
const EXTEND: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0";

/// A client of redsync's protocol: `SET NX PX`, and scripts that compare first.
struct Peer {
    connection: MultiplexedConnection,
    /// The base64 of sixteen bytes.
    value: &'static str,
}

impl Peer {
    async fn of(server: &Server) -> Self {
        let connection = server.connection().await;
        let value = "q83vEjRWeJCrze8SNFZ4kA==";
        Self { connection, value }
    }

    async fn lock(&mut self, millis: &str) -> bool {
        let set = ["SET", "m", self.value, "NX", "PX", millis];
        ask::<Option<String>>(&mut self.connection, &set)
            .await
            .is_some()
    }

    async fn unlock(&mut self) -> i64 {
        let eval = ["EVAL", RELEASE, "1", "m", self.value];
        ask(&mut self.connection, &eval).await
    }

    async fn extend(&mut self, millis: &str) -> i64 {
        let eval = ["EVAL", EXTEND, "1", "m", self.value, millis];
        ask(&mut self.connection, &eval).await
    }

    async fn value(&mut self) -> Option<String> {
        ask(&mut self.connection, &["GET", "m"]).await
    }
}

async fn start() -> (Server, Client, Peer) {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let peer = Peer::of(&server).await;
    (server, client, peer)
}

fn plain(client: &Client) -> Mutex {
    client.mutex("m").wire(Wire::Plain)
}

#[tokio::test]
async fn a_plain_lock_is_a_string_under_the_very_name() {
    let (server, client, _) = start().await;
    let mut heard = server.listen(CHANNEL).await;
    let guard = plain(&client).lock().await.unwrap();
    assert_eq!(server.keys().await, ["m"]);
    let value: String = server.query(&["GET", "m"]).await;
    assert_eq!(value, guard.hold_id().as_str());
    let left: i64 = server.query(&["PTTL", "m"]).await;
    assert!(left <= 30_000 && left > 28_000, "{left}");
    guard.release().await.unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
    assert_eq!(heard.next().await, "0");
}

#[tokio::test]
async fn the_peer_and_we_exclude_each_other() {
    let (_server, client, mut peer) = start().await;
    let mutex = plain(&client);
    assert!(peer.lock("30000").await);
    assert!(mutex.try_lock().await.unwrap().is_none());
    let wait = Duration::from_millis(100);
    assert!(mutex.try_lock_for(wait).await.unwrap().is_none());
    let status = mutex.status().await.unwrap().unwrap();
    assert_eq!(status.hold.as_str(), peer.value);
    assert!(status.remaining.unwrap() > Duration::from_secs(25));
    assert_eq!(peer.unlock().await, 1);
    let guard = mutex.try_lock().await.unwrap().unwrap();
    assert!(!peer.lock("30000").await);
    assert_eq!((peer.extend("1").await, peer.unlock().await), (0, 0));
    guard.release().await.unwrap();
    assert_eq!(peer.unlock().await, -1);
    assert!(peer.lock("30000").await);
}

#[tokio::test]
async fn neither_frees_what_the_other_has_taken_over() {
    let (_server, client, mut peer) = start().await;
    let mutex = plain(&client).fixed_lease(Duration::from_millis(100));
    let guard = mutex.lock().await.unwrap();
    eventually("our lease runs out", async || peer.lock("30000").await).await;
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    let probe = client.clone();
    client.close().await;
    assert_eq!(stats(&probe).owed, 0);
    assert_eq!(peer.value().await.as_deref(), Some(peer.value));
    assert_eq!(peer.extend("30000").await, 1);
    assert_eq!(peer.unlock().await, 1);
}

#[tokio::test]
async fn a_holder_that_was_replaced_learns_it_at_the_next_renewal() {
    let (server, client, mut peer) = start().await;
    let ttl = Duration::from_millis(900);
    let guard = plain(&client).ttl(ttl).lock().await.unwrap();
    let sound = client.mutex("sound").wire(Wire::Plain).ttl(ttl);
    let sound = sound.lock().await.unwrap();
    let hash = client.mutex("hash").ttl(ttl).lock().await.unwrap();
    server.query::<u64>(&["DEL", "m"]).await;
    assert!(peer.lock("30000").await);
    within("the loss", guard.lost()).await;
    tokio::time::sleep(2 * ttl).await;
    for guard in [&sound, &hash] {
        assert_eq!(guard.lease().state(), LeaseState::Held);
    }
    assert_eq!(peer.value().await.as_deref(), Some(peer.value));
    drop(guard);
    sound.release().await.unwrap();
    hash.release().await.unwrap();
}

#[tokio::test]
async fn a_release_that_nobody_announces_is_found_by_looking() {
    let (_server, client, mut peer) = start().await;
    assert!(peer.lock("30000").await);
    let mutex = plain(&client);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    eventually("it looks", async || stats(&client).woken_to_look > 4).await;
    let begun = Instant::now();
    assert_eq!(peer.unlock().await, 1);
    let guard = within("the waiter", waiter).await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(250 + 500), "{took:?}");
    let seen = stats(&client);
    assert_eq!((seen.woken_by_message, seen.woken_by_timer), (0, 0));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_looks_a_few_times_a_second_and_not_more() {
    let (server, client, mut peer) = start().await;
    assert!(peer.lock("30000").await);
    let before = server.calls("evalsha").await;
    let wait = Duration::from_secs(3);
    assert!(plain(&client).try_lock_for(wait).await.unwrap().is_none());
    let looks = server.calls("evalsha").await - before;
    // Pauses of 20, 40, 80, 160 ms, then 250 ms, each down to its half.
    assert!((8..=32).contains(&looks), "{looks}");
}

#[tokio::test]
async fn the_end_of_a_peers_lease_is_not_slept_through() {
    let (_server, client, mut peer) = start().await;
    let begun = Instant::now();
    assert!(peer.lock("600").await);
    let guard = within("the waiter", plain(&client).lock()).await.unwrap();
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(595), "{took:?}");
    assert!(took < Duration::from_millis(600 + 500), "{took:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn our_own_release_wakes_a_waiter_by_an_announcement() {
    let (server, one, _) = start().await;
    let two = Client::connect(&server.url()).await.unwrap();
    // A look may come just before an announcement, but not every time.
    for round in 1.. {
        let guard = plain(&one).lock().await.unwrap();
        let mutex = plain(&two);
        let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
        let looks = stats(&two).woken_to_look;
        eventually("it looks", async || stats(&two).woken_to_look > looks + 3).await;
        guard.release().await.unwrap();
        within("the waiter", waiter)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        if stats(&two).woken_by_message > 0 {
            return;
        }
        assert!(round < 10, "no announcement is heard");
    }
}

#[tokio::test]
async fn work_of_peers_and_ours_never_overlaps() {
    let server = Server::start().await;
    let (inside, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let work = async |inside: &AtomicU64, total: &AtomicU64| {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        let seen = total.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        total.store(seen + 1, Ordering::SeqCst);
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let mut tasks = tokio::task::JoinSet::new();
    for value in ["q83vEjRWeJCrze8SNFZ4kA==", "EjRWeJCrze8SNFZ4kKvN7w=="] {
        let connection = server.connection().await;
        let mut peer = Peer { connection, value };
        let (inside, total) = (Arc::clone(&inside), Arc::clone(&total));
        tasks.spawn(async move {
            for _ in 0..25 {
                while !peer.lock("8000").await {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                work(&inside, &total).await;
                assert_eq!(peer.unlock().await, 1);
            }
        });
    }
    for _ in 0..2 {
        let client = Client::connect(&server.url()).await.unwrap();
        let (inside, total) = (Arc::clone(&inside), Arc::clone(&total));
        tasks.spawn(async move {
            for _ in 0..25 {
                let guard = plain(&client).lock().await.unwrap();
                work(&inside, &total).await;
                guard.release().await.unwrap();
            }
        });
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    };
    within("the work", all).await;
    assert_eq!(total.load(Ordering::SeqCst), 100);
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_repeated_acquire_knows_its_own_token() {
    let (server, client, _) = start().await;
    let acquire = async |serial: u64, seconds: u64| {
        let hold = format!("71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:{serial}");
        let hold: HoldId = hold.parse().unwrap();
        let (name, ttl) = ("m".to_owned(), Duration::from_secs(seconds));
        let fenced = false;
        let call = Call::PlainAcquire {
            name,
            hold,
            ttl,
            fenced,
        };
        testing::call(&client, &call).await.unwrap().text
    };
    assert_eq!(acquire(11, 30).await, "Held");
    assert_eq!(acquire(11, 60).await, "Held");
    // One that begins as it does, or as which it begins, is another.
    assert_eq!(acquire(1, 30).await, "Busy");
    assert_eq!(acquire(111, 30).await, "Busy");
    let left: i64 = server.query(&["PTTL", "m"]).await;
    assert!(left > 58_000, "{left}");
    assert_eq!(acquire(11, 10).await, "Held");
    let left: i64 = server.query(&["PTTL", "m"]).await;
    assert!(left > 58_000, "a longer TTL is kept: {left}");
}

#[tokio::test]
async fn each_format_refuses_the_key_of_the_other_and_leaves_it_alone() {
    let (server, client, _) = start().await;
    let hash = client.mutex("m");
    for (mine, theirs, kind) in [
        (plain(&client), hash.clone(), "string"),
        (hash, plain(&client), "hash"),
    ] {
        let guard = mine.lock().await.unwrap();
        for answer in [
            theirs.lock().await.err(),
            theirs.try_lock().await.err(),
            theirs.try_lock_for(Duration::from_secs(5)).await.err(),
            theirs.status().await.err(),
            theirs.force_unlock().await.err(),
        ] {
            assert!(matches!(answer, Some(Error::Protocol(_))), "{answer:?}");
        }
        assert_eq!(server.query::<String>(&["TYPE", "m"]).await, kind);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn whatever_stands_there_is_another_holder() {
    let (server, client, _) = start().await;
    let mut raw = server.connection().await;
    let mutex = plain(&client);
    // Raw bytes, nothing at all, and a counter: a lock is a lock.
    for (bytes, shown) in [
        (&b"\x00\xffbytes"[..], r"\x00\xffbytes"),
        (b"", ""),
        (b"7", "7"),
    ] {
        let mut set = redis::cmd("SET");
        set.arg("m").arg(bytes);
        set.query_async::<()>(&mut raw).await.unwrap();
        assert!(mutex.try_lock().await.unwrap().is_none());
        let status = mutex.status().await.unwrap().unwrap();
        assert_eq!((status.hold.as_str(), status.count), (shown, 1));
        assert_eq!(status.remaining, None, "it has no end");
        assert!(mutex.force_unlock().await.unwrap());
        assert!(!mutex.force_unlock().await.unwrap());
    }
}

#[tokio::test]
async fn a_text_too_long_for_a_token_is_not_broken() {
    let (server, client, _) = start().await;
    let mutex = plain(&client);
    for (length, breaks) in [(1024, true), (1025, false)] {
        server.query::<()>(&["SET", "m", &"x".repeat(length)]).await;
        assert!(mutex.try_lock().await.unwrap().is_none());
        let broken = mutex.force_unlock().await;
        match breaks {
            true => assert!(broken.unwrap()),
            false => assert!(matches!(broken, Err(Error::Protocol(_)))),
        }
    }
    assert_eq!(server.query::<u64>(&["STRLEN", "m"]).await, 1025);
}

#[tokio::test]
async fn breaking_a_peers_lock_wakes_a_waiter() {
    let (server, client, mut peer) = start().await;
    let operator = Client::connect(&server.url()).await.unwrap();
    assert!(peer.lock("30000").await);
    let mutex = plain(&client);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    eventually("it looks", async || stats(&client).woken_to_look > 0).await;
    assert!(plain(&operator).force_unlock().await.unwrap());
    within("the waiter", waiter)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_plain_lock_can_be_fenced() {
    let (server, client, mut peer) = start().await;
    let mutex = plain(&client).fenced();
    let guard = mutex.lock().await.unwrap();
    let first = guard.token().unwrap();
    guard.release().await.unwrap();
    assert!(peer.lock("30000").await);
    assert_eq!(peer.unlock().await, 1);
    let guard = mutex.lock().await.unwrap();
    let token = guard.token().unwrap();
    assert!(token > first);
    let key = "redisson_lock_token:{m}";
    assert_eq!(server.query::<u64>(&["GET", key]).await, token.get());
    guard.release().await.unwrap();
    // One sequence for both formats.
    let hash = client.mutex("m").fenced().lock().await.unwrap();
    assert!(hash.token().unwrap() > token);
    hash.release().await.unwrap();
}

#[tokio::test]
async fn only_the_rights_that_are_used_are_needed() {
    const RIGHTS: &str = "few on nopass resetchannels ~m ~redisson_lock_token:{m} \
        &leasehold_plain:{m} -@all +hello +evalsha +script|load +get +getex +set +pttl +pexpire \
        +del +publish +subscribe +unsubscribe +ping";
    let (server, _, mut peer) = start().await;
    let mut user = vec!["ACL", "SETUSER"];
    user.extend(RIGHTS.split_whitespace());
    server.query::<()>(&user).await;
    let url = format!("redis://few@127.0.0.1:{}", server.port());
    let few = Client::connect(&url).await.unwrap();
    let mutex = plain(&few).ttl(Duration::from_millis(600));
    assert!(peer.lock("300").await);
    let guard = within("the lock", mutex.lock()).await.unwrap();
    let sent = stats(&few).renewal_batches;
    eventually("it is renewed", async || {
        stats(&few).renewal_batches > sent + 2
    })
    .await;
    assert_eq!(guard.lease().state(), LeaseState::Held);
    assert!(mutex.is_locked().await.unwrap());
    guard.release().await.unwrap();
    assert!(!mutex.force_unlock().await.unwrap());
    // Fencing needs two more.
    let fenced = mutex.fenced();
    assert!(matches!(fenced.lock().await, Err(Error::Refused(_))));
    server
        .query::<()>(&["ACL", "SETUSER", "few", "+incr", "+time"])
        .await;
    let guard = fenced.lock().await.unwrap();
    assert!(guard.token().is_some());
    guard.release().await.unwrap();
}
