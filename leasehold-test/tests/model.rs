//! The model test: the same random steps on the memory store and on another one, compared.
//!
//! The seed is printed, and `SEED=…` repeats it. A sequence that fails is cut down to the fewest
//! steps that still fail. Nobody sleeps: time passes by making keys older, never to within
//! [`MARGIN`] of an end, so that a slow machine cannot make a difference.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail as tests do"
)]

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use leasehold::testing::{self, Call, Reply};
use leasehold::{Client, HoldId, Token};
use leasehold_test::server::ask;
use leasehold_test::{Backend, Kind, Random};
use redis::aio::MultiplexedConnection;

/// How near to an end no key may come.
const MARGIN: Duration = Duration::from_secs(10);
/// How far two stores may be apart in what is left of a lease.
const SLACK: Duration = Duration::from_millis(1_500);
const SEQUENCES: usize = 10;
const STEPS: usize = 300;

const NAMES: [&str; 4] = ["m", "n", "app:{t}:a", "app:{t}:b"];
/// Where others may write: the names, and where the tokens of two of them are counted.
const KEYS: [&str; 6] = [
    "m",
    "n",
    "app:{t}:a",
    "app:{t}:b",
    "redisson_lock_token:{m}",
    "redisson_lock_token:app:{t}:a",
];
const HOLDS: [&str; 4] = [
    "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:1",
    "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:2",
    "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:-7",
    "0a0f2f5c-93c1-4c53-8a5e-5a4b7a1f6c02:1",
];
/// Apart by more than the slack, so that a wrong one shows.
const TTLS: [u64; 4] = [30, 45, 90, 180];

#[derive(Clone, Debug)]
enum Step {
    Call(Call),
    /// Time passes.
    Age(Duration),
    /// Somebody else writes a text under the key.
    Plant(&'static str),
    /// Somebody removes the key.
    Delete(&'static str),
}

/// Which steps the other store can take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    All,
    /// Only operations: nobody else writes there.
    Calls,
}

fn random_call(random: &mut Random) -> Call {
    let name = (*random.one_of(&NAMES)).to_owned();
    let hold: HoldId = random.one_of(&HOLDS).parse().unwrap();
    let ttl = Duration::from_secs(*random.one_of(&TTLS));
    if random.between(0, 3) == 0 {
        return random_plain_call(random, name, hold, ttl);
    }
    match random.between(0, 20) {
        0..8 => {
            let count = *random.one_of(&[1, 1, 1, 1, 2, 2, 3, 4]);
            match random.between(0, 2) {
                0 => Call::Acquire {
                    name,
                    hold,
                    count,
                    ttl,
                },
                _ => Call::AcquireFenced {
                    name,
                    hold,
                    count,
                    ttl,
                },
            }
        }
        8..14 => {
            let leave = *random.one_of(&[0, 0, 0, 1, 1, 2, 3]);
            Call::Release {
                name,
                hold,
                leave,
                ttl,
            }
        }
        14..17 => Call::Renew(random_batch(random)),
        17 => Call::ForceUnlock { name },
        _ => Call::Inspect { name },
    }
}

fn random_plain_call(random: &mut Random, name: String, hold: HoldId, ttl: Duration) -> Call {
    match random.between(0, 20) {
        0..9 => Call::PlainAcquire {
            name,
            hold,
            ttl,
            fenced: random.between(0, 2) == 0,
        },
        9..14 => Call::PlainRelease { name, hold },
        14..17 => Call::PlainRenew(random_batch(random)),
        17 => Call::PlainForceUnlock { name },
        _ => Call::PlainInspect { name },
    }
}

/// Names of one slot, as a batch must have them.
fn random_batch(random: &mut Random) -> Vec<(String, HoldId, Option<Duration>)> {
    let names = match random.between(0, 3) {
        0 => &NAMES[0..1],
        1 => &NAMES[1..2],
        _ => &NAMES[2..4],
    };
    let one = |name: &&str| {
        let hold: HoldId = random.one_of(&HOLDS).parse().unwrap();
        let ttl = Duration::from_secs(*random.one_of(&TTLS));
        let ttl = Some(ttl).filter(|_| random.between(0, 3) > 0);
        ((*name).to_owned(), hold, ttl)
    };
    names.iter().map(one).collect()
}

fn random_steps(random: &mut Random, steps: Steps) -> Vec<Step> {
    let step = |_| match random.between(0, 20) {
        0..2 if steps == Steps::All => Step::Age(Duration::from_secs(random.between(1, 100))),
        2 if steps == Steps::All => Step::Plant(random.one_of::<&str>(&KEYS)),
        3 if steps == Steps::All => Step::Delete(random.one_of::<&str>(&KEYS)),
        _ => Step::Call(random_call(random)),
    };
    (0..STEPS).map(step).collect()
}

/// A pair of stores that should agree.
struct Pair {
    memory: Client,
    other: Client,
    server: Option<MultiplexedConnection>,
    /// The newest tokens of each lock, on both.
    tokens: HashMap<String, [Token; 2]>,
}

impl Pair {
    /// Two empty stores: a new memory, and the backend as it is, emptied where it is a server.
    async fn new(store: &Backend) -> Self {
        let mut server = None;
        if let Backend::Redis(real) = store {
            let mut connection = real.connection().await;
            ask::<()>(&mut connection, &["FLUSHALL"]).await;
            server = Some(connection);
        }
        let memory = Client::memory();
        let other = store.client().await;
        Self {
            memory,
            other,
            server,
            tokens: HashMap::new(),
        }
    }

    /// Each store has tokens of its own, but both give a new one, or both the same again.
    fn fenced(&mut self, call: &Call, said: &Reply, other: &Reply) -> Result<(), String> {
        let name = match call {
            Call::AcquireFenced { name, .. } => name,
            Call::PlainAcquire { name, fenced, .. } if *fenced => name,
            _ => return Ok(()),
        };
        let now = match (said.token, other.token) {
            (Some(said), Some(other)) => [said, other],
            (None, None) if said.text != "Held" => return Ok(()),
            (said, other) => return Err(format!("tokens {said:?} and {other:?}")),
        };
        let rise = match self.tokens.insert(name.clone(), now) {
            Some(before) => [now[0].cmp(&before[0]), now[1].cmp(&before[1])],
            None => [Ordering::Greater; 2],
        };
        match rise {
            [Ordering::Greater, Ordering::Greater] | [Ordering::Equal, Ordering::Equal] => Ok(()),
            _ => Err(format!("tokens went {rise:?} to {now:?}")),
        }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Call(call) => {
                let said = testing::call(&self.memory, call).await;
                let other = testing::call(&self.other, call).await;
                let (said, other) = (said.unwrap(), other.map_err(|error| error.to_string())?);
                same(&said, &other)?;
                self.fenced(call, &said, &other)?;
            }
            Step::Age(time) => self.age(*time).await,
            Step::Plant(name) => {
                testing::plant(&self.memory, name, "text").unwrap();
                self.ask::<()>(&["SET", name, "text"]).await;
            }
            Step::Delete(name) => {
                let had = testing::delete(&self.memory, name).unwrap();
                let other: u64 = self.ask(&["DEL", name]).await;
                if had != (other == 1) {
                    return Err(format!("{name} was there: {had}, on the other: {other}"));
                }
            }
        }
        self.compare().await
    }

    /// Makes every key older, unless one would come near its end.
    async fn age(&mut self, time: Duration) {
        let mut left = vec![];
        for name in NAMES {
            let millis: i64 = self.ask(&["PTTL", name]).await;
            if let Ok(millis) = u64::try_from(millis) {
                left.push((name, Duration::from_millis(millis)));
            }
        }
        if left.iter().any(|(_, left)| left.abs_diff(time) < MARGIN) {
            return;
        }
        testing::age(&self.memory, time).unwrap();
        for (name, left) in left {
            let rest = left.saturating_sub(time).as_millis().to_string();
            self.ask::<u64>(&["PEXPIRE", name, &rest]).await;
        }
    }

    /// Keys, fields and what is left of each lease.
    async fn compare(&mut self) -> Result<(), String> {
        for name in NAMES.map(str::to_owned) {
            let plain = Call::PlainInspect { name: name.clone() };
            for inspect in [Call::Inspect { name }, plain] {
                let said = testing::call(&self.memory, &inspect).await.unwrap();
                let other = testing::call(&self.other, &inspect).await;
                let other = other.map_err(|error| error.to_string())?;
                same(&said, &other).map_err(|error| format!("{inspect:?}: {error}"))?;
            }
        }
        if self.server.is_some() {
            let mut keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
            keys.retain(|key| !key.starts_with("leasehold:client:"));
            keys.sort();
            let mut there = testing::keys(&self.memory).unwrap();
            // The records of the clients are no part of the locks.
            there.retain(|key| !key.starts_with("leasehold:client:"));
            if keys != there {
                return Err(format!("memory has {there:?}, the server {keys:?}"));
            }
        }
        Ok(())
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, command: &[&str]) -> T {
        ask(self.server.as_mut().unwrap(), command).await
    }
}

fn same(memory: &Reply, other: &Reply) -> Result<(), String> {
    let near = match (memory.time, other.time) {
        (Some(one), Some(two)) => one.abs_diff(two) <= SLACK,
        (one, two) => one == two,
    };
    if memory.text == other.text && near {
        return Ok(());
    }
    Err(format!("memory says {memory:?}, the other {other:?}"))
}

/// Runs the steps on empty stores; the number of the step that failed, and how.
async fn run(store: &Backend, steps: &[Step]) -> Result<(), (usize, String)> {
    let mut pair = Pair::new(store).await;
    for (number, step) in steps.iter().enumerate() {
        let done = pair.step(step).await;
        done.map_err(|error| (number, error))?;
    }
    Ok(())
}

/// Drops every step without which it still fails.
async fn shrink(kind: Kind, mut steps: Vec<Step>, mut error: String) -> (Vec<Step>, String) {
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        let store = Backend::start(kind).await;
        if let Err((number, found)) = run(&store, &fewer).await {
            fewer.truncate(number + 1);
            at = at.min(fewer.len());
            (steps, error) = (fewer, found);
        }
    }
    (steps, error)
}

async fn agrees(kind: Kind, what: &str, steps: Steps) {
    let mut random = Random::seeded(what);
    for _ in 0..SEQUENCES {
        let mut steps = random_steps(&mut random, steps);
        let store = Backend::start(kind).await;
        if let Err((number, error)) = run(&store, &steps).await {
            steps.truncate(number + 1);
            let (steps, error) = shrink(kind, steps, error).await;
            panic!("{kind:?} and memory disagree: {error}\nafter {steps:#?}");
        }
    }
}

#[tokio::test]
async fn a_server_does_what_memory_does() {
    agrees(Kind::Redis, "a_server_does_what_memory_does", Steps::All).await;
}

#[tokio::test]
async fn the_local_store_does_what_memory_does() {
    let what = "the_local_store_does_what_memory_does";
    agrees(Kind::Local, what, Steps::Calls).await;
}

#[tokio::test]
async fn two_memories_agree_and_a_difference_is_found() {
    let mut random = Random::seeded("two_memories_agree_and_a_difference_is_found");
    let steps = random_steps(&mut random, Steps::Calls);
    let store = Backend::start(Kind::Memory).await;
    assert_eq!(run(&store, &steps).await, Ok(()));
    // A store that somebody else used before is another store, and the comparison sees it.
    let store = Backend::start(Kind::Memory).await;
    let guard = store.client().await.mutex("m").lock().await.unwrap();
    let fresh = [Step::Call(Call::Inspect {
        name: "m".to_owned(),
    })];
    assert!(run(&store, &fresh).await.is_err());
    guard.release().await.unwrap();
}
