//! The plain format, shared with other libraries, and fencing tokens.

#[macro_use]
mod support;

use serde_json::Value;
use support::{Place, eventually};

const FOREIGN: &str = "SET job someone-else NX PX 60000";
const TOKEN: &str = "echo ${LEASEHOLD_TOKEN-none}";

on_each_store![
    a_plain_hold_is_renewed_and_released_by_its_identity,
    each_command_acts_on_the_plain_format_only_when_told,
    a_command_renews_the_plain_hold_around_it,
    the_tokens_of_fenced_holds_rise,
    acquire_tells_its_token_in_both_forms,
    the_token_of_a_run_around_is_not_passed_on,
];

fn a_plain_hold_is_renewed_and_released_by_its_identity(place: &Place) {
    let taken = place.done(&["acquire", "job", "--lease", "20s", "--plain"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    let hold = taken.out.trim();
    assert_eq!(place.run(&["-n", "--plain"], "true").done().code, 75);
    let renewed = place.done(&["renew", "job", "--hold", hold, "--lease", "1h", "--plain"]);
    assert_eq!(renewed.code, 0, "{renewed:?}");
    let status = status(place);
    assert_eq!(status["hold"], hold);
    assert!(status["remaining_ms"].as_u64().expect("a number") > 3_500_000);
    let release = ["release", "job", "--hold", hold, "--plain"];
    assert_eq!(place.done(&release).code, 0);
    assert_eq!(status_code(place), 1);
    assert_eq!(place.done(&release).code, 76);
}

fn each_command_acts_on_the_plain_format_only_when_told(place: &Place) {
    let taken = place.done(&["acquire", "job", "--lease", "1h", "--plain"]);
    let hold = taken.out.trim();
    for (words, code) in [
        (&["run", "job", "-n", "--", "true"][..], 77),
        (&["acquire", "job", "--lease", "1s", "-n"], 77),
        (&["renew", "job", "--hold", hold], 77),
        (&["release", "job", "--hold", hold], 76),
        (&["status", "job"], 77),
        (&["wait", "job", "--wait", "0s"], 77),
        (&["unlock", "job", "--force"], 77),
    ] {
        let refused = place.done(words);
        assert_eq!(refused.code, code, "{words:?}: {refused:?}");
    }
    assert_eq!(place.done(&["ls"]).out, "");
    let wait = ["wait", "job", "--plain", "--wait", "0s"];
    assert_eq!(place.done(&wait).code, 75);
    assert_eq!(status(place)["hold"], hold);
    assert_eq!(place.done(&["unlock", "job", "--force", "--plain"]).code, 0);
    assert_eq!(place.done(&wait).code, 0);
}

fn a_command_renews_the_plain_hold_around_it(place: &Place) {
    let script = "$LEASEHOLD renew job --plain --hold $LEASEHOLD_HOLD --lease 1h && \
                  $LEASEHOLD status job --plain --json";
    let done = place.run(&["--plain"], script).done();
    assert_eq!(done.code, 0, "{done:?}");
    let status: Value = serde_json::from_str(&done.out).expect("JSON");
    assert!(status["remaining_ms"].as_u64().expect("a number") > 3_500_000);
    assert!(status["pid"].is_number(), "{done:?}");
    assert_eq!(status_code(place), 1);
}

fn the_tokens_of_fenced_holds_rise(place: &Place) {
    let token = |options: &[&str]| number(&place.run(options, TOKEN).done().out);
    let first = token(&["--fenced"]);
    let second = token(&["--fenced"]);
    assert!(second > first, "{first} {second}");
    let plain = token(&["--fenced", "--plain"]);
    assert!(plain > second, "{second} {plain}");
}

fn acquire_tells_its_token_in_both_forms(place: &Place) {
    let taken = place.done(&["acquire", "job", "--lease", "1h", "--fenced"]);
    let (hold, token) = taken.out.split_once('\n').expect("two lines");
    assert_eq!(place.done(&["release", "job", "--hold", hold]).code, 0);
    let again = place.done(&["acquire", "job", "--lease", "1h", "--fenced", "--json"]);
    let again: Value = serde_json::from_str(&again.out).expect("JSON");
    assert!(number(again["token"].as_str().expect("text")) > number(token));
    let hold = again["hold"].as_str().expect("text");
    assert_eq!(place.done(&["release", "job", "--hold", hold]).code, 0);
    let unfenced = place.done(&["acquire", "job", "--lease", "1h", "--json"]);
    assert!(!unfenced.out.contains("token"), "{unfenced:?}");
}

fn the_token_of_a_run_around_is_not_passed_on(place: &Place) {
    let script = format!("{TOKEN}; $LEASEHOLD run inner -- sh -c '{TOKEN}'");
    let done = place.run(&["--fenced"], &script).done();
    let (outer, inner) = done.out.split_once('\n').expect("two lines");
    assert!(number(outer) > 0);
    assert_eq!(inner, "none\n", "{done:?}");
}

#[test]
fn a_foreign_plain_lock_and_ours_exclude_each_other() {
    let place = Place::redis();
    let server = place.server();
    assert_eq!(server.command(FOREIGN), "+OK\r\n");
    let busy = place.run(&["--plain", "-n"], "echo no").done();
    assert_eq!((busy.code, busy.out.as_str()), (75, ""), "{busy:?}");
    assert_eq!(server.command("DEL job"), ":1\r\n");
    let mut holder = place.run(&["--plain"], "echo > held; exec sleep 60");
    place.read("held");
    assert_eq!(server.command(FOREIGN), "$-1\r\n");
    holder.signal("TERM");
    assert_eq!(holder.done().code, 143);
    assert_eq!(server.command(FOREIGN), "+OK\r\n");
}

#[test]
fn a_plain_run_waits_for_a_foreign_release() {
    let place = Place::redis();
    assert_eq!(place.server().command(FOREIGN), "+OK\r\n");
    let waiter = place.start(&["run", "--plain", "job", "--", "echo", "mine"]);
    let listeners = "PUBSUB NUMSUB leasehold_plain:{job}";
    eventually("a waiter that listens", || {
        place.server().command(listeners).ends_with(":1\r\n")
    });
    assert_eq!(place.server().command("DEL job"), ":1\r\n");
    let done = waiter.done();
    assert_eq!((done.code, done.out.as_str()), (0, "mine\n"), "{done:?}");
}

#[test]
fn the_status_of_a_foreign_plain_lock_shows_its_value() {
    let place = Place::redis();
    place.server().command(FOREIGN);
    let shown = place.done(&["status", "job", "--plain"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(
        shown.out.starts_with("job: held by someone-else, 5"),
        "{shown:?}"
    );
    let status = status(&place);
    assert_eq!(
        (&status["hold"], &status["held"], &status["pid"]),
        (&"someone-else".into(), &true.into(), &Value::Null)
    );
    place.server().command("SET job \"\\x1b[2J\\xff\"");
    let shown = place.done(&["status", "job", "--plain"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("without an end"), "{shown:?}");
    assert!(!shown.out.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn the_token_of_the_command_is_what_the_server_has_counted() {
    let place = Place::redis();
    for options in [&["--fenced"][..], &["--fenced", "--plain"]] {
        let done = place.run(options, TOKEN).done();
        let reply = place.server().command("GET redisson_lock_token:{job}");
        assert_eq!(reply.lines().nth(1), Some(done.out.trim()), "{done:?}");
    }
    // An acquire without a token leaves the count alone.
    let before = place.server().command("GET redisson_lock_token:{job}");
    assert_eq!(place.run(&[], TOKEN).done().out, "none\n");
    let after = place.server().command("GET redisson_lock_token:{job}");
    assert_eq!(before, after);
}

fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}

fn status(place: &Place) -> Value {
    let done = place.done(&["status", "job", "--plain", "--json"]);
    serde_json::from_str(&done.out).expect("JSON")
}

fn status_code(place: &Place) -> i32 {
    place.done(&["status", "job", "--plain"]).code
}
