//! What scripts build on, on each store.

#[macro_use]
mod support;

use std::time::Duration;

use support::{Place, Running, catches, eventually, timed};

on_each_store![
    a_wait_ends_when_the_lock_is_free,
    a_wait_that_is_too_short_gives_75_or_the_code_that_was_asked_for,
    a_wait_takes_nothing,
    what_acquire_took_is_held_until_it_is_released,
    what_acquire_took_ends_with_its_lease,
    renew_lengthens_and_never_shortens,
    nobody_releases_or_renews_the_hold_of_another,
    acquire_waits_for_the_lock_or_says_75,
    a_hold_that_nobody_was_told_of_is_given_back,
    a_signal_ends_the_wait_of_acquire_and_leaves_nothing,
    a_command_renews_and_releases_the_hold_around_it,
];

fn a_wait_ends_when_the_lock_is_free(place: &Place) {
    let mut holder = place.run(&[], "echo > held; exec sleep 60");
    place.read("held");
    let mut shell = std::process::Command::new("sh");
    place.settle(&mut shell);
    let script = "echo > started; $LEASEHOLD wait job && echo free";
    let waiter = Running::spawn(shell.args(["-c", script]));
    place.read("started");
    holder.signal("TERM");
    let done = waiter.done();
    assert_eq!((done.code, done.out.as_str()), (0, "free\n"), "{done:?}");
    assert_eq!(holder.done().code, 143);
}

fn a_wait_that_is_too_short_gives_75_or_the_code_that_was_asked_for(place: &Place) {
    assert_eq!(place.done(&["wait", "job", "--wait", "0s"]).code, 0);
    let mut holder = place.run(&[], "echo > held; exec sleep 60");
    place.read("held");
    let (done, took) = timed(|| place.done(&["wait", "job", "--wait", "300ms"]));
    assert_eq!(done.code, 75, "{done:?}");
    assert!(done.err.contains("job is still held"), "{done:?}");
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert_eq!(
        place.done(&["wait", "job", "--wait", "0s", "-E", "0"]).code,
        0
    );
    holder.signal("TERM");
    assert_eq!(holder.done().code, 143);
}

fn a_wait_takes_nothing(place: &Place) {
    let script = "$LEASEHOLD wait job --wait 100ms; $LEASEHOLD status job --json";
    let done = place
        .run(&[], &format!("echo $LEASEHOLD_HOLD; {script}"))
        .done();
    let (hold, status) = done.out.split_once('\n').expect("two lines");
    assert!(status.contains(hold), "{done:?}");
    assert!(place.is_free("job"));
}

fn what_acquire_took_is_held_until_it_is_released(place: &Place) {
    let taken = place.done(&["acquire", "job", "--lease", "1h"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    let hold = taken.out.trim();
    let status = place.done(&["status", "job"]);
    assert!(status.out.contains(hold), "{status:?}");
    assert_eq!(place.run(&["-n"], "true").done().code, 75);
    let released = place.done(&["release", "job", "--hold", hold]);
    assert_eq!(
        (released.code, released.out.as_str()),
        (0, ""),
        "{released:?}"
    );
    assert!(place.is_free("job"));
    let again = place.done(&["release", "job", "--hold", hold]);
    assert_eq!(again.code, 76, "{again:?}");
}

fn what_acquire_took_ends_with_its_lease(place: &Place) {
    let taken = place.done(&["acquire", "job", "--lease", "300ms"]);
    assert_eq!(place.done(&["wait", "job", "--wait", "10s"]).code, 0);
    let late = place.done(&["renew", "job", "--hold", taken.out.trim()]);
    assert_eq!(late.code, 76, "{late:?}");
    assert!(place.is_free("job"), "renewed from nothing");
}

fn renew_lengthens_and_never_shortens(place: &Place) {
    let left = || {
        let done = place.done(&["status", "job", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
        Duration::from_millis(status["remaining_ms"].as_u64().expect("a number"))
    };
    let taken = place.done(&["acquire", "job", "--lease", "20s"]);
    let hold = taken.out.trim();
    let renewed = place.done(&["renew", "job", "--hold", hold, "--lease", "1h"]);
    assert_eq!((renewed.code, renewed.out.as_str()), (0, ""), "{renewed:?}");
    assert!(left() > Duration::from_secs(3500));
    assert_eq!(place.done(&["renew", "job", "--hold", hold]).code, 0);
    assert!(left() > Duration::from_secs(3500));
}

fn nobody_releases_or_renews_the_hold_of_another(place: &Place) {
    let taken = place.done(&["acquire", "job", "--lease", "1h"]);
    let stranger = "00000000-0000-4000-8000-000000000000:1";
    assert_eq!(place.done(&["release", "job", "--hold", stranger]).code, 76);
    assert_eq!(place.done(&["renew", "job", "--hold", stranger]).code, 76);
    let status = place.done(&["status", "job"]);
    assert!(status.out.contains(taken.out.trim()), "{status:?}");
}

fn acquire_waits_for_the_lock_or_says_75(place: &Place) {
    let mut holder = place.run(&[], "echo > held; exec sleep 60");
    place.read("held");
    assert_eq!(
        place.done(&["acquire", "job", "--lease", "1h", "-n"]).code,
        75
    );
    let busy = [
        "acquire", "job", "--lease", "1h", "--wait", "50ms", "-E", "9",
    ];
    let busy = place.done(&busy);
    assert_eq!((busy.code, busy.out.as_str()), (9, ""), "{busy:?}");
    let waiter = place.start(&["acquire", "job", "--lease", "1h", "--json"]);
    holder.signal("TERM");
    let done = waiter.done();
    let taken: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!(taken["name"], "job", "{done:?}");
    let hold = taken["hold"].as_str().expect("text");
    assert_eq!(place.done(&["release", "job", "--hold", hold]).code, 0);
    assert_eq!(holder.done().code, 143);
}

fn a_hold_that_nobody_was_told_of_is_given_back(place: &Place) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = place.leasehold(&["acquire", "job", "--lease", "1h"]);
    assert_eq!(Running::spawn(command.stdout(writer)).done().code, 141);
    assert!(place.is_free("job"));
}

fn a_signal_ends_the_wait_of_acquire_and_leaves_nothing(place: &Place) {
    let mut holder = place.run(&[], "echo > held; exec sleep 60");
    place.read("held");
    let mut waiter = place.start(&["acquire", "job", "--lease", "1h"]);
    let pid = waiter.pid();
    eventually("the waiter's handler", || catches(&pid, 2));
    waiter.signal("INT");
    let done = waiter.done();
    assert_eq!((done.code, done.signal), (130, Some(2)), "{done:?}");
    holder.signal("TERM");
    assert_eq!(holder.done().code, 143);
    assert!(place.is_free("job"));
}

fn a_command_renews_and_releases_the_hold_around_it(place: &Place) {
    let script = "$LEASEHOLD renew job --hold $LEASEHOLD_HOLD && \
                  $LEASEHOLD release job --hold $LEASEHOLD_HOLD; exec sleep 60";
    let done = place.run(&["--ttl", "900ms"], script).done();
    // Whoever shows the hold may end it; then the command must not go on.
    assert_eq!(done.code, 76, "{done:?}");
    assert!(place.is_free("job"));
}
