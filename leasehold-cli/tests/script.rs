//! What scripts build on, on each store.

#[macro_use]
mod support;

use std::time::Duration;

use support::{Place, Running, timed};

on_each_store![
    a_wait_ends_when_the_lock_is_free,
    a_wait_that_is_too_short_gives_75_or_the_code_that_was_asked_for,
    a_wait_takes_nothing,
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
