//! The records of clients: how they come, live on and go, and that no lock depends on them.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::testing::records;
use leasehold::{Client, Memory};
use leasehold_test::{Server, Taker, eventually};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);
const TAKER: &str = env!("CARGO_BIN_EXE_taker");

/// The only record of a server.
async fn record(server: &Server) -> Option<String> {
    let keys: Vec<String> = server.query(&["KEYS", "leasehold:client:*"]).await;
    assert!(keys.len() < 2, "{keys:?}");
    keys.into_iter().next()
}

async fn pttl(server: &Server, key: &str) -> i64 {
    server.query(&["PTTL", key]).await
}

#[tokio::test(start_paused = true)]
async fn a_record_lives_on_while_something_is_held_and_only_then() {
    let memory = Memory::new();
    let client = Client::builder().memory(&memory);
    let mutex = client.mutex("m");
    assert_eq!(records(&client).unwrap(), 1, "written at once");
    sleep(61 * SECOND).await;
    assert_eq!(
        records(&client).unwrap(),
        0,
        "an idle client writes nothing"
    );
    for _ in 0..100 {
        mutex.lock().await.unwrap().release().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(
        records(&client).unwrap(),
        0,
        "nor does one that holds but shortly"
    );
    let guard = mutex.lock().await.unwrap();
    for _ in 0..100 {
        sleep(3 * SECOND).await;
        assert_eq!(records(&client).unwrap(), 1, "a holder is known");
    }
    guard.release().await.unwrap();
    sleep(61 * SECOND).await;
    assert_eq!(records(&client).unwrap(), 0, "after that it runs out");
}

#[tokio::test(start_paused = true)]
async fn a_record_lives_on_for_a_hold_that_was_let_go() {
    let memory = Memory::new();
    let client = Client::builder().memory(&memory);
    let mutex = client.mutex("m").fixed_lease(600 * SECOND);
    let _hold = mutex.lock().await.unwrap().forget();
    for _ in 0..59 {
        sleep(10 * SECOND).await;
        assert_eq!(records(&client).unwrap(), 1, "a holder is known");
    }
    sleep(90 * SECOND).await;
    assert_eq!(records(&client).unwrap(), 0, "after that it runs out");
}

#[tokio::test]
async fn a_record_is_a_hash_with_an_end_that_comes_with_the_handshake() {
    let server = Server::start().await;
    let client = Client::builder().label("it").connect(&server.url()).await;
    let key = record(&server).await.unwrap();
    let fields: BTreeMap<String, String> = server.query(&["HGETALL", &key]).await;
    let names: Vec<_> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["host", "label", "pid", "program", "since"]);
    assert_eq!(fields["pid"], std::process::id().to_string());
    let time: (u64, u64) = server.query(&["TIME"]).await;
    let since: u64 = fields["since"].parse().unwrap();
    let now = time.0 * 1000;
    assert!(since + 10_000 > now && since < now + 1_000, "{since} {now}");
    let left = pttl(&server, &key).await;
    assert!((50_000..=60_000).contains(&left), "{left}");
    let guard = client.as_ref().unwrap().mutex("m").lock().await.unwrap();
    assert!(
        guard
            .hold_id()
            .as_str()
            .starts_with(&key["leasehold:client:".len()..])
    );
    guard.release().await.unwrap();
    client.unwrap().close().await;
    assert_eq!(record(&server).await, None);
}

#[tokio::test]
async fn a_record_lasts_as_long_as_the_longest_lease() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let mutex = client.mutex("m").fixed_lease(600 * SECOND);
    let guard = mutex.lock().await.unwrap();
    let key = record(&server).await.unwrap();
    eventually("the record lasts", async || {
        pttl(&server, &key).await > 500_000
    })
    .await;
    guard.extend(3_000 * SECOND).await.unwrap();
    eventually("the record lasts longer", async || {
        pttl(&server, &key).await > 2_900_000
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_record_comes_back_with_the_next_connection_and_says_since_when() {
    let mut server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let key = record(&server).await.unwrap();
    let since: String = server.query(&["HGET", &key, "since"]).await;
    server.restart().await;
    eventually("it is back", async || record(&server).await.is_some()).await;
    let again: String = server.query(&["HGET", &key, "since"]).await;
    assert_eq!(since, again);
    client.close().await;
    assert_eq!(record(&server).await, None);
}

#[tokio::test]
async fn the_record_of_a_killed_process_goes_by_its_ttl() {
    let server = Server::start().await;
    let mut taker = Taker::spawn(TAKER, &server.url(), "m", &[]);
    taker.held().await;
    let key = record(&server).await.unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let holder = client.mutex("m").holders().await.unwrap().remove(0);
    assert_eq!(holder.program.as_deref(), Some("taker"));
    taker.kill().await;
    let left = pttl(&server, &key).await;
    assert!(left > 0 && left <= 60_000, "{left}");
    // Nobody lets it live on: older by all that is left, it is gone.
    server.query::<()>(&["PEXPIRE", &key, "1"]).await;
    eventually("it is gone", async || pttl(&server, &key).await == -2).await;
    let holder = client.mutex("m").holders().await.unwrap().remove(0);
    assert_eq!((holder.host, holder.pid, holder.since), (None, None, None));
}

#[tokio::test]
async fn a_user_without_the_right_has_locks_and_no_record_and_is_not_asked_on() {
    let server = Server::start().await;
    let user = [
        "ACL", "SETUSER", "bob", "on", "nopass", "~m*", "&*", "+@all",
    ];
    server.query::<()>(&user).await;
    let url = format!("redis://bob@127.0.0.1:{}/", server.port());
    let client = Client::connect(&url).await.unwrap();
    let mutex = client.mutex("m").fixed_lease(600 * SECOND);
    let guard = mutex.lock().await.unwrap();
    let rejected = async || {
        let info: String = server.query(&["INFO", "commandstats"]).await;
        let mut lines = info.lines();
        let line = lines.find(|line| line.starts_with("cmdstat_evalsha:"));
        let rest = line.and_then(|line| line.split("rejected_calls=").nth(1));
        let digits = rest.and_then(|rest| rest.split(',').next());
        digits.map_or(0, |digits| digits.parse::<u64>().unwrap())
    };
    eventually("the record was refused twice", async || {
        rejected().await == 2
    })
    .await;
    let holder = mutex.holders().await.unwrap().remove(0);
    assert_eq!(&holder.hold, guard.hold_id());
    assert_eq!((holder.host, holder.pid, holder.label), (None, None, None));
    assert_eq!(rejected().await, 3, "reading it was refused");
    sleep(2 * SECOND).await;
    assert_eq!(rejected().await, 3, "it is not written again and again");
    assert_eq!(record(&server).await, None);
    guard.release().await.unwrap();
    client.close().await;
}

#[tokio::test]
async fn foreign_holders_and_foreign_records_are_unknown() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let uuid = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11";
    let key = format!("leasehold:client:{uuid}");
    let field = format!("{uuid}:-12");
    server.query::<()>(&["HSET", "m", &field, "2"]).await;
    let mutex = client.mutex("m");
    let seen = mutex.holders().await.unwrap().remove(0);
    assert_eq!(
        (seen.hold.as_str(), seen.count, seen.pid),
        (field.as_str(), 2, None)
    );
    // Neither a key of another type nor fields that make no sense fail the question.
    server.query::<()>(&["SET", &key, "text"]).await;
    assert_eq!(mutex.holders().await.unwrap(), [seen]);
    server.query::<()>(&["DEL", &key]).await;
    let long = "x".repeat(100_000);
    let odd = [
        "HSET", &key, "pid", "many", "host", "", "since", "never", "label", &long,
    ];
    server.query::<()>(&odd).await;
    let odd = mutex.holders().await.unwrap().remove(0);
    assert_eq!((odd.host, odd.pid, odd.since), (None, None, None));
    assert_eq!(odd.label.unwrap().len(), 256);
}
