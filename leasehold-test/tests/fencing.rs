//! Fencing tokens: they rise, whatever a store forgets, and a resource can go by them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail as tests do"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::testing::{self, Call};
use leasehold::{Client, Error, HoldId, Refusal, Token};
use leasehold_test::{Backend, Kind, Server, eventually};
use tokio::time::Instant;

const KEY: &str = "redisson_lock_token:{m}";

/// One hold, and its token.
async fn mint(client: &Client) -> Token {
    let guard = client.mutex("m").fenced().lock().await.unwrap();
    let token = guard.token().unwrap();
    guard.release().await.unwrap();
    token
}

async fn redis() -> (Server, Client) {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    (server, client)
}

async fn tokens_rise_in_the_order_of_the_holds(kind: Kind) {
    let store = Backend::start(kind).await;
    let order = Arc::new(Mutex::new(vec![]));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..6 {
        let (client, order) = (store.client().await, Arc::clone(&order));
        tasks.spawn(async move {
            for _ in 0..20 {
                let guard = client.mutex("m").fenced().lock().await.unwrap();
                order.lock().unwrap().push(guard.token().unwrap());
                tokio::task::yield_now().await;
                if number % 2 == 0 {
                    guard.release().await.unwrap();
                }
            }
            client.close().await;
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let order = order.lock().unwrap();
    assert_eq!(order.len(), 120);
    assert!(order.is_sorted_by(|earlier, later| earlier < later));
}

async fn tokens_rise_through_a_reopened_store(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mut last = mint(&client).await;
    client.close().await;
    for _ in 0..3 {
        let client = store.client().await;
        let token = mint(&client).await;
        assert!(token > last);
        last = token;
        client.close().await;
    }
}

async fn a_hold_has_one_token_as_long_as_it_is_known(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").ttl(Duration::from_millis(600)).fenced();
    let guard = mutex.lock().await.unwrap();
    let token = guard.token();
    assert!(token.is_some());
    let again = guard.reenter();
    assert_eq!(again.token(), token);
    drop(guard);
    // Renewals mint nothing.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(again.token(), token);
    store.remove("m").await;
    again.lost().await;
    assert_eq!(again.token(), token, "it is still told after the loss");
    let next = mutex.lock().await.unwrap();
    assert_eq!(
        next.token().unwrap().get().cmp(&token.unwrap().get()),
        std::cmp::Ordering::Greater
    );
    next.release().await.unwrap();
    let plain = client.mutex("m").lock().await.unwrap();
    assert_eq!(plain.token(), None, "it did not ask for one");
    plain.release().await.unwrap();
}

macro_rules! on {
    ($store:ident $kind:ident; $($name:ident),* $(,)?) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $name() {
                    let test = super::$name(leasehold_test::Kind::$kind);
                    leasehold_test::within(stringify!($name), test).await;
                }
            )*
        }
    };
}

macro_rules! everywhere {
    ($($tests:tt)*) => {
        on!(memory Memory; $($tests)*);
        on!(local Local; $($tests)*);
        on!(redis_server Redis; $($tests)*);
    };
}

everywhere! {
    tokens_rise_in_the_order_of_the_holds,
    tokens_rise_through_a_reopened_store,
    a_hold_has_one_token_as_long_as_it_is_known,
}

#[tokio::test]
async fn tokens_rise_through_a_flush_and_a_thousand_mints_in_a_second() {
    let (server, client) = redis().await;
    let mut raw = server.connection().await;
    let mut last = mint(&client).await;
    // A machine that is busy with other things may need a second try to be that fast.
    for _ in 0..10 {
        let begun = Instant::now();
        for number in 0..1_000 {
            if number % 100 == 99 {
                leasehold_test::server::ask::<()>(&mut raw, &["FLUSHALL"]).await;
            }
            let token = mint(&client).await;
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        if begun.elapsed() < Duration::from_secs(1) {
            return;
        }
    }
    panic!("a thousand mints took more than a second, ten times");
}

#[tokio::test]
async fn tokens_rise_through_a_restart_without_persistence() {
    let (mut server, client) = redis().await;
    let mut last = mint(&client).await;
    for _ in 0..3 {
        server.restart().await;
        assert_eq!(server.keys().await, Vec::<String>::new());
        let token = mint(&client).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[tokio::test]
async fn what_a_java_program_counts_is_part_of_the_sequence() {
    let (server, client) = redis().await;
    let ours = mint(&client).await;
    let theirs: u64 = server.query(&["INCR", KEY]).await;
    assert_eq!(theirs, ours.get() + 1);
    // Far ahead of the clock, and of what a float can count.
    for ahead in ["9007199254740993", "9223372036854775800"] {
        server.query::<()>(&["SET", KEY, ahead]).await;
        let ahead: u64 = ahead.parse().unwrap();
        assert_eq!(mint(&client).await.get(), ahead + 1);
        assert_eq!(server.query::<u64>(&["INCR", KEY]).await, ahead + 2);
        assert_eq!(mint(&client).await.get(), ahead + 3);
    }
}

#[tokio::test]
async fn at_03_a_token_is_exact_to_the_end_of_the_numbers() {
    let (server, client) = redis().await;
    for start in [1_u64 << 53, (1 << 53) + 1, i64::MAX.unsigned_abs() - 2] {
        server.query::<()>(&["SET", KEY, &start.to_string()]).await;
        for step in 1..=3 {
            if start + step > i64::MAX.unsigned_abs() {
                let taken = client.mutex("m").fenced().try_lock().await;
                assert!(matches!(taken, Err(Error::Protocol(_))), "{taken:?}");
                assert_eq!(server.keys().await, [KEY], "no lock is left");
                continue;
            }
            let token = mint(&client).await.get();
            assert_eq!(token, start + step);
            assert_eq!(server.query::<u64>(&["GET", KEY]).await, token);
        }
    }
}

#[tokio::test]
async fn fn_03_one_counter_for_each_name_and_none_is_missed() {
    let (server, client) = redis().await;
    for number in 0..200 {
        let name = format!("m:{number}");
        let guard = client.mutex(&name).fenced().lock().await.unwrap();
        guard.release().await.unwrap();
    }
    let keys = server.keys().await;
    assert_eq!(keys.len(), 200);
    for key in &keys {
        assert!(key.starts_with("redisson_lock_token:{m:"), "{key}");
        assert_eq!(server.query::<i64>(&["PTTL", key]).await, -1);
    }
    let before = mint(&client).await;
    let ttl = Duration::from_millis(300);
    let guard = client.mutex("m").ttl(ttl).fenced().lock().await.unwrap();
    assert_eq!(server.query::<u64>(&["DEL", KEY]).await, 1);
    let sent = testing::stats(&client).renewal_batches;
    eventually("it is renewed", async || {
        testing::stats(&client).renewal_batches > sent + 1
    })
    .await;
    assert!(guard.token().unwrap() > before);
    let token = guard.token().unwrap();
    guard.release().await.unwrap();
    assert!(mint(&client).await > token);
}

#[tokio::test]
async fn a_counter_that_is_behind_is_set_to_the_clock_digit_by_digit() {
    let (server, client) = redis().await;
    for behind in ["1", "-5", "99999999999999"] {
        server.query::<()>(&["SET", KEY, behind]).await;
        let before: (u64, u64) = server.query(&["TIME"]).await;
        let token = mint(&client).await.get();
        let after: (u64, u64) = server.query(&["TIME"]).await;
        let floor = |(seconds, micros): (u64, u64)| (seconds << 20) + micros;
        assert!(token >= floor(before) && token <= floor(after), "{token}");
        let stored: String = server.query(&["GET", KEY]).await;
        assert_eq!(stored, token.to_string());
    }
}

#[tokio::test]
async fn a_key_that_counts_no_tokens_is_told_and_nothing_is_held() {
    let (server, client) = redis().await;
    let mut odd: Vec<Vec<&str>> = vec![vec!["RPUSH", KEY, "x"]];
    odd.extend(["text", "", "1.5", "9223372036854775807"].map(|text| vec!["SET", KEY, text]));
    for put in odd {
        server.query::<redis::Value>(&put).await;
        for mutex in [
            client.mutex("m").fenced(),
            client.mutex("m").fenced().wire(leasehold::Wire::Plain),
        ] {
            let error = mutex.lock().await.unwrap_err();
            let told = matches!(&error, Error::Protocol(why) if why.contains("tokens"));
            assert!(told, "{put:?}: {error:?}");
        }
        assert_eq!(server.keys().await, [KEY], "{put:?}");
        server.query::<u64>(&["DEL", KEY]).await;
    }
}

#[tokio::test]
async fn a_full_server_mints_nothing() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let client = Client::connect(&server.url()).await.unwrap();
    let held = client.mutex("m").fenced().lock().await.unwrap();
    let token: String = server.query(&["GET", KEY]).await;
    server
        .query::<()>(&["CONFIG", "SET", "maxmemory", "1"])
        .await;
    held.release().await.unwrap();
    for wire in [leasehold::Wire::Redisson, leasehold::Wire::Plain] {
        let answer = client.mutex("m").wire(wire).fenced().try_lock().await;
        let full = matches!(answer, Err(Error::Refused(Refusal::OutOfMemory(_))));
        assert!(full, "{answer:?}");
    }
    assert_eq!(server.keys().await, [KEY]);
    assert_eq!(server.query::<String>(&["GET", KEY]).await, token);
}

/// The counter may go away under a hold. Whoever repeats a request then gets a later number, which
/// is as good.
#[tokio::test]
async fn a_hold_whose_counter_was_deleted_gets_a_later_token() {
    let (server, client) = redis().await;
    let hold: HoldId = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:1".parse().unwrap();
    for plain in [false, true] {
        let (name, ttl) = ("m".to_owned(), Duration::from_secs(30));
        let (hold, count, fenced) = (hold.clone(), 1, true);
        let call = match plain {
            true => Call::PlainAcquire {
                name,
                hold,
                ttl,
                fenced,
            },
            false => Call::AcquireFenced {
                name,
                hold,
                count,
                ttl,
            },
        };
        let first = testing::call(&client, &call).await.unwrap().token.unwrap();
        let again = testing::call(&client, &call).await.unwrap().token.unwrap();
        assert_eq!(first, again);
        server.query::<u64>(&["DEL", KEY]).await;
        let later = testing::call(&client, &call).await.unwrap().token.unwrap();
        assert!(later > first);
        server.query::<u64>(&["DEL", "m"]).await;
    }
}

/// The recipe of the manual.
const GUARDED_WRITE: &str = "\
local last = redis.call('get', KEYS[2]) or '0'
if #ARGV[1] < #last or (#ARGV[1] == #last and ARGV[1] < last) then
    return 0
end
redis.call('set', KEYS[2], ARGV[1])
redis.call('set', KEYS[1], ARGV[2])
return 1
";

#[tokio::test]
async fn a_guarded_write_refuses_a_holder_that_has_been_overtaken() {
    let manual = include_str!("../../leasehold/src/manual/fencing.md");
    assert!(manual.contains(GUARDED_WRITE), "the manual has the recipe");
    let (server, client) = redis().await;
    let other = Client::connect(&server.url()).await.unwrap();
    let write = async |token: u64, value: &str| {
        let (number, keys) = (token.to_string(), ["{stock}", "{stock}:fence"]);
        let eval = ["EVAL", GUARDED_WRITE, "2", keys[0], keys[1], &number, value];
        server.query::<u64>(&eval).await == 1
    };
    let lease = Duration::from_millis(200);
    let slow = client.mutex("m").fixed_lease(lease).fenced();
    let slow = slow.lock().await.unwrap();
    let stale = slow.token().unwrap().get();
    assert!(write(stale, "begun").await);
    eventually("the lease runs out", async || {
        !other.mutex("m").is_locked().await.unwrap()
    })
    .await;
    let next = other.mutex("m").fenced().lock().await.unwrap();
    let fresh = next.token().unwrap().get();
    assert!(write(fresh, "next").await);
    assert!(!write(stale, "late").await, "it was overtaken");
    assert!(write(fresh, "again").await, "the same holder may go on");
    assert_eq!(server.query::<String>(&["GET", "{stock}"]).await, "again");
    // Digits count: neighbours that are one and the same float, and numbers of different length.
    assert!(write(9_007_199_254_740_993, "x").await);
    assert!(!write(9_007_199_254_740_992, "y").await);
    assert!(!write(999, "y").await);
    assert!(write(10_000_000_000_000_000, "z").await);
    next.release().await.unwrap();
}

#[tokio::test]
async fn only_the_rights_that_are_used_are_needed() {
    const RIGHTS: &str = "few on nopass resetchannels ~m ~redisson_lock_token:{m} \
        &redisson_lock__channel:{m} -@all +hello +evalsha +script|load +hdel +hget +hset +exists \
        +pttl +pexpire +hexists +del +publish";
    let (server, _) = redis().await;
    let mut user = vec!["ACL", "SETUSER"];
    user.extend(RIGHTS.split_whitespace());
    server.query::<()>(&user).await;
    let url = format!("redis://few@127.0.0.1:{}", server.port());
    let few = Client::connect(&url).await.unwrap();
    for right in ["+time", "+incr", "+set", "+get"] {
        let taken = few.mutex("m").fenced().try_lock().await;
        let refused = matches!(taken, Err(Error::Refused(Refusal::Permission(_))));
        assert!(refused, "without {right}: {taken:?}");
        assert!(!server.keys().await.contains(&"m".to_owned()));
        server.query::<()>(&["ACL", "SETUSER", "few", right]).await;
    }
    let first = mint(&few).await;
    assert!(mint(&few).await > first);
}
