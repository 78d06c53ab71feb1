//! The scripts, as text and on a real server.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::path::Path;

use leasehold::testing;
use leasehold_test::{Backend, Kind, Server};

/// The leading comment, and what follows it.
fn parts(text: &str) -> (String, String) {
    let (head, body): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("--"));
    (head.join("\n"), body.join("\n"))
}

/// The text without strings and comments.
fn bare(body: &str) -> String {
    let mut out = String::new();
    for line in body.lines() {
        let mut quote = None;
        let mut rest = line.chars().peekable();
        while let Some(c) = rest.next() {
            match quote {
                Some(open) if c == open => quote = None,
                Some(_) => {}
                None if c == '\'' || c == '"' => quote = Some(c),
                None if c == '-' && rest.peek() == Some(&'-') => break,
                None => out.push(c),
            }
        }
        out.push('\n');
    }
    out
}

/// `KEYS[1]`, `ARGV[2]`, or the bare `KEYS`, `ARGV` for an index that is computed.
fn parameters(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for table in ["KEYS", "ARGV"] {
        for (at, _) in text.match_indices(table) {
            let rest = &text[at + table.len()..];
            let index = rest
                .strip_prefix('[')
                .and_then(|rest| rest.split(']').next());
            match index {
                Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                    found.insert(format!("{table}[{digits}]"));
                }
                _ => {
                    found.insert(table.to_owned());
                }
            }
        }
    }
    found
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Every name that is assigned without having been declared as local.
fn globals(body: &str) -> Vec<String> {
    let mut locals = BTreeSet::new();
    let mut globals = vec![];
    for line in bare(body).lines().map(str::trim) {
        let declared = line
            .strip_prefix("local ")
            .or_else(|| line.strip_prefix("for "));
        let names = declared.map(|rest| rest.strip_prefix("function ").unwrap_or(rest));
        if let Some(names) = names {
            let end = names.find(['=', '(']).or_else(|| names.find(" in "));
            let names = &names[..end.unwrap_or(names.len())];
            let names = names.split(" in ").next().unwrap_or(names);
            locals.extend(names.split(',').map(|name| name.trim().to_owned()));
            continue;
        }
        if line.starts_with("function ") {
            globals.push(line.to_owned());
        }
        for (at, _) in line.match_indices('=') {
            let (before, after) = (&line[..at], &line[at + 1..]);
            let compared = before.ends_with(['=', '~', '<', '>']) || after.starts_with('=');
            let target = before.trim_end();
            let name: String = target.chars().rev().take_while(|&c| word(c)).collect();
            let name: String = name.chars().rev().collect();
            let member = target[..target.len() - name.len()].ends_with('.');
            if !compared && !name.is_empty() && !member && !locals.contains(&name) {
                globals.push(name);
            }
        }
    }
    globals
}

#[test]
fn the_check_for_globals_finds_them() {
    assert_eq!(globals("x = 1"), ["x"]);
    assert_eq!(
        globals("local y = 1\ny = 2\nif y == 3 then\n z = 'a = 1'"),
        ["z"]
    );
    assert_eq!(globals("function f() end").len(), 1);
    let clean = "local t = {}\nfor i, k in ipairs(t) do\n t[i] = k\n k = 1\nend -- x = 1";
    assert_eq!(globals(clean), Vec::<String>::new());
}

#[test]
fn every_script_file_is_a_script_of_the_library() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leasehold/src/op/lua");
    let mut on_disk = BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        on_disk.insert((name, std::fs::read_to_string(&path).unwrap()));
    }
    let scripts = testing::scripts();
    let loaded = scripts.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(loaded.collect::<BTreeSet<_>>(), on_disk);
}

#[test]
fn every_header_names_the_parameters_and_the_reply() {
    for (name, text) in testing::scripts() {
        let (head, body) = parts(text);
        assert!(text.starts_with("-- "), "{name} begins with what it does");
        assert!(head.contains("-- reply "), "{name} says what it replies");
        assert_eq!(parameters(&head), parameters(&bare(&body)), "{name}");
    }
}

#[test]
fn scripts_have_no_globals_and_join_no_texts() {
    for (name, text) in testing::scripts() {
        let (_, body) = parts(text);
        assert_eq!(globals(&body), Vec::<String>::new(), "{name}");
        assert!(
            !bare(&body).contains(".."),
            "{name}: a number could lose digits"
        );
        assert!(!bare(&body).contains("tostring"), "{name}");
    }
}

#[test]
fn the_first_call_of_every_script_is_guarded() {
    for (name, text) in testing::scripts() {
        let (_, body) = parts(text);
        let first = body.find("redis.").map(|at| &body[at..]).unwrap();
        let guarded = first.starts_with("redis.pcall(");
        assert!(guarded, "{name}: a key of another type raises an error");
    }
}

#[tokio::test]
async fn a_replica_answers_no_script_whatever_is_under_the_key() {
    const MINE: &str = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:1";
    const OTHER: &str = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:2";
    let (master, replica) = (Server::start().await, Server::start().await);
    for (key, hold) in [("mine", MINE), ("busy", OTHER)] {
        master.query::<()>(&["HSET", key, hold, "1"]).await;
    }
    for (key, text) in [("text", "a text"), ("plain", MINE), ("token", "7")] {
        master.query::<()>(&["SET", key, text]).await;
    }
    let port = master.port().to_string();
    replica
        .query::<()>(&["REPLICAOF", "127.0.0.1", &port])
        .await;
    leasehold_test::eventually("the replica has it all", async || {
        replica.keys().await == ["busy", "mine", "plain", "text", "token"]
    })
    .await;
    let mut connection = replica.connection().await;
    for (name, text) in testing::scripts() {
        for (key, count) in [("free", "1"), ("free", "0"), ("mine", "1"), ("mine", "0")]
            .into_iter()
            .chain([("busy", "1"), ("busy", "2"), ("busy", "0")])
            .chain([("text", "1"), ("plain", "1")])
        {
            // A second key is where tokens are counted; one of them holds none.
            for keys in [&[key][..], &[key, "fresh"], &[key, "token"], &[key, "text"]] {
                let mut eval = redis::cmd("EVAL");
                eval.arg(text).arg(keys.len()).arg(keys);
                eval.arg(MINE).arg(count).arg("1000").arg("1000");
                let reply: redis::RedisResult<redis::Value> = eval
                    .arg("channel")
                    .arg("PUBLISH")
                    .query_async(&mut connection)
                    .await;
                let error = reply.expect_err("a replica must not answer for its master");
                // Redis 6 puts the place in the script before the code: look for the words.
                let refused = error.to_string().contains("against a read only replica");
                assert!(refused, "{name} {keys:?} {count}: {error}");
            }
        }
    }
}

/// Rights are looked at call by call, so that a script may fail in the midst of its work.
#[tokio::test]
async fn a_missing_right_is_no_busy_lock_and_leaves_no_lock_behind() {
    const HOLD: &str = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:1";
    let server = Server::start().await;
    let plain = &["get", "set", "incr", "time"][..];
    let hash = &[
        "hget", "exists", "hset", "pttl", "pexpire", "incr", "time", "set", "get",
    ][..];
    for (script, rights) in [("mutex_acquire", hash), ("plain_acquire", plain)] {
        let (_, acquire) = testing::scripts()
            .find(|(name, _)| *name == script)
            .unwrap();
        for right in rights {
            let but = format!("-{right}");
            let user = [
                "ACL", "SETUSER", right, "reset", "on", "nopass", "~*", "+@all", &but,
            ];
            server.query::<()>(&user).await;
            let url = format!("redis://{right}:any@127.0.0.1:{}/", server.port());
            let user = redis::Client::open(url).unwrap();
            let mut connection = user.get_multiplexed_async_connection().await.unwrap();
            let mut eval = redis::cmd("EVAL");
            eval.arg(acquire).arg(2).arg("free").arg("token").arg(HOLD);
            if script == "mutex_acquire" {
                eval.arg(1);
            }
            let reply: redis::RedisResult<redis::Value> =
                eval.arg(30_000).query_async(&mut connection).await;
            let error = reply.expect_err(right).to_string();
            let case = format!("{script} without {right}: {error}");
            let words = ["can't run this command", "has no permissions"];
            assert!(words.iter().any(|words| error.contains(words)), "{case}");
            // A number may be lost. Nothing is held.
            server.query::<u64>(&["DEL", "token"]).await;
            assert_eq!(server.keys().await, Vec::<String>::new(), "{case}");
        }
    }
}

#[test]
fn a_lock_is_deleted_before_that_is_announced() {
    let mut announcing = 0;
    for (name, text) in testing::scripts() {
        let (head, body) = parts(text);
        let Some((_, after)) = head.split_once("PUBLISH or SPUBLISH") else {
            continue;
        };
        assert!(after.contains("reply"), "{name}");
        let deleted = body.find("redis.call('del', KEYS[1])").unwrap();
        let announced = body.find(", '0')").unwrap();
        assert!(deleted < announced, "{name}");
        announcing += 1;
    }
    assert_eq!(announcing, 4);
}

#[tokio::test]
async fn every_script_loads_on_a_server_under_its_digest() {
    let server = Server::start().await;
    for (name, text) in testing::scripts() {
        let digest: String = server.query(&["SCRIPT", "LOAD", text]).await;
        let sum = ["EVAL", "return redis.sha1hex(ARGV[1])", "0", text];
        let expected: String = server.query(&sum).await;
        assert_eq!(digest, expected, "{name}");
    }
}

#[tokio::test]
async fn a_client_loads_every_script_when_it_connects() {
    let store = Backend::start(Kind::Redis).await;
    let _client = store.client().await;
    let Backend::Redis(server) = &store else {
        unreachable!("it was asked for");
    };
    for (name, text) in testing::scripts() {
        let sum = ["EVAL", "return redis.sha1hex(ARGV[1])", "0", text];
        let digest: String = server.query(&sum).await;
        let known: Vec<u64> = server.query(&["SCRIPT", "EXISTS", &digest]).await;
        assert_eq!(known, [1], "{name}");
    }
}
