//! What ends a wait, and what does not.

use leasehold::Error;
use leasehold::blocking::Interrupt;

use crate::everywhere;
use crate::support::{BRIEF, Bench, SOON, eventually, now, work};

everywhere! {
    ac_05_a_plain_lock_is_not_ended_by_an_interrupt,
    ac_05_an_interruptible_wait_is_ended_and_holds_nothing,
    an_interrupted_waiter_behind_another_leaves_the_line,
    a_bounded_wait_is_interrupted_too,
    an_interrupt_before_the_wait_ends_it_at_once,
    an_interrupt_that_was_cleared_ends_nothing,
    one_interrupt_ends_many_waits,
}

fn ac_05_a_plain_lock_is_not_ended_by_an_interrupt(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    let interrupt = Interrupt::new();
    let (mutex, seen) = (b.mutex("m"), interrupt.clone());
    let waiting = work(move || (mutex.lock(), seen.is_interrupted()));
    assert!(waiting.within(BRIEF).is_none());
    interrupt.interrupt();
    assert!(waiting.within(BRIEF).is_none(), "it waits on");
    guard.release().unwrap();
    let (held, still_asked) = waiting.soon();
    let held = held.expect("it returns only with the lock");
    assert!(held.is_held() && still_asked);
    held.release().unwrap();
}

fn ac_05_an_interruptible_wait_is_ended_and_holds_nothing(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    let interrupt = Interrupt::new();
    let (mutex, asked) = (b.mutex("m"), interrupt.clone());
    let waiting = work(move || mutex.lock_interruptibly(&asked));
    assert!(waiting.within(BRIEF).is_none());
    let begun = now();
    interrupt.interrupt();
    assert!(matches!(waiting.soon(), Err(Error::Interrupted)));
    assert!(begun.elapsed() < SOON);
    guard.release().unwrap();
    eventually("the lock is free", || !a.mutex("m").is_locked().unwrap());
    let next = a.mutex("m").try_lock_for(SOON).unwrap().unwrap();
    next.release().unwrap();
}

fn an_interrupted_waiter_behind_another_leaves_the_line(bench: &Bench) {
    let client = bench.client();
    let guard = client.mutex("m").lock().unwrap();
    let interrupt = Interrupt::new();
    let (mutex, asked) = (client.mutex("m"), interrupt.clone());
    let first = work(move || mutex.lock_interruptibly(&asked));
    assert!(first.within(BRIEF).is_none());
    let mutex = client.mutex("m");
    let second = work(move || mutex.lock_interruptibly(&Interrupt::new()));
    assert!(second.within(BRIEF).is_none());
    interrupt.interrupt();
    assert!(matches!(first.soon(), Err(Error::Interrupted)));
    guard.release().unwrap();
    second.soon().unwrap().release().unwrap();
}

fn a_bounded_wait_is_interrupted_too(bench: &Bench) {
    let client = bench.client();
    let guard = client.mutex("m").lock().unwrap();
    let interrupt = Interrupt::new();
    let mutex = client.mutex("m");
    let busy = mutex.try_lock_for_interruptibly(BRIEF, &interrupt);
    assert!(busy.unwrap().is_none());
    let asked = interrupt.clone();
    let waiting = work(move || mutex.try_lock_for_interruptibly(10 * SOON, &asked));
    assert!(waiting.within(BRIEF).is_none());
    interrupt.interrupt();
    assert!(matches!(waiting.soon(), Err(Error::Interrupted)));
    guard.release().unwrap();
}

fn an_interrupt_before_the_wait_ends_it_at_once(bench: &Bench) {
    let client = bench.client();
    let interrupt = Interrupt::new();
    interrupt.interrupt();
    let mutex = client.mutex("m");
    let ended = mutex.lock_interruptibly(&interrupt);
    assert!(matches!(ended, Err(Error::Interrupted)));
    assert!(!mutex.is_locked().unwrap(), "nothing was asked for");
}

fn an_interrupt_that_was_cleared_ends_nothing(bench: &Bench) {
    let client = bench.client();
    let interrupt = Interrupt::new();
    interrupt.interrupt();
    assert!(interrupt.clear() && !interrupt.clear());
    let guard = client.mutex("m").lock_interruptibly(&interrupt).unwrap();
    interrupt.interrupt();
    assert!(guard.is_held(), "a hold is not ended by an interrupt");
    guard.release().unwrap();
}

fn one_interrupt_ends_many_waits(bench: &Bench) {
    let client = bench.client();
    let guard = client.mutex("m").lock().unwrap();
    let interrupt = Interrupt::new();
    let waits: Vec<_> = (0..4)
        .map(|_| {
            let (mutex, asked) = (client.mutex("m"), interrupt.clone());
            work(move || mutex.lock_interruptibly(&asked))
        })
        .collect();
    assert!(waits[3].within(BRIEF).is_none());
    interrupt.interrupt();
    for wait in waits {
        assert!(matches!(wait.soon(), Err(Error::Interrupted)));
    }
    guard.release().unwrap();
}
