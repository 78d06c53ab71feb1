//! A thread that enters again what it holds, where it says who it is.

use leasehold::Error;
use leasehold::blocking::Client;

use crate::everywhere;
use crate::support::{Bench, work};

everywhere! {
    a_thread_that_says_so_enters_again_and_no_other_does,
    a_thread_is_another_owner_for_another_client,
    a_token_and_a_hold_pass_through,
}

fn a_thread_that_says_so_enters_again_and_no_other_does(bench: &Bench) {
    let client = bench.client();
    let mine = |client: &Client| client.mutex("m").owner(&client.thread_owner());
    let outer = mine(&client).lock().unwrap();
    let inner = mine(&client)
        .try_lock()
        .unwrap()
        .expect("the owner enters again");
    let me = client.thread_owner();
    assert_eq!(mine(&client).hold_count(&me).unwrap(), 2);
    let other = client.clone();
    let seen = work(move || {
        let mutex = other.mutex("m").owner(&other.thread_owner());
        let held = mutex.is_held_by(&other.thread_owner()).unwrap();
        (
            mutex.try_lock().unwrap().is_none(),
            held,
            other.thread_owner(),
        )
    });
    let (busy, held, another) = seen.soon();
    assert!(busy && !held && another != me);
    assert!(
        client.mutex("m").try_lock().unwrap().is_none(),
        "who does not say so is nobody"
    );
    inner.release().unwrap();
    assert!(mine(&client).is_held_by(&me).unwrap());
    outer.release().unwrap();
    assert!(!client.mutex("m").is_locked().unwrap());
}

fn a_thread_is_another_owner_for_another_client(bench: &Bench) {
    let (one, two) = (bench.client(), bench.client());
    assert_eq!(one.thread_owner(), one.thread_owner());
    assert_ne!(one.thread_owner(), two.thread_owner());
    let foreign = two.mutex("m").owner(&one.thread_owner()).lock();
    assert!(matches!(foreign, Err(Error::Config(_))), "{foreign:?}");
}

fn a_token_and_a_hold_pass_through(bench: &Bench) {
    let client = bench.client();
    let mutex = client.mutex("m").fenced();
    let first = mutex.lock().unwrap();
    let token = first.token().expect("it was asked for");
    first.release().unwrap();
    let second = mutex.lock().unwrap();
    assert!(second.token().unwrap() > token);
    let hold = second.forget();
    let adopted = client.mutex("m").adopt(hold.clone()).unwrap();
    assert_eq!(client.mutex("m").holders().unwrap()[0].hold, hold);
    adopted.release().unwrap();
}
