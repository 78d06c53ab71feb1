//! Measurements, for whatever recorder the program has installed. Feature `metrics`.

use std::fmt;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};

use super::observe::{Cause, Ended, Loss};
use crate::store::observe::RECONNECTS;

const WAIT: &str = "leasehold_wait_seconds";
const WAITERS: &str = "leasehold_waiters";
const HOLDS: &str = "leasehold_holds";
const MARGIN: &str = "leasehold_renewal_margin_seconds";
const LOSSES: &str = "leasehold_losses_total";
const WAKES: &str = "leasehold_wakes_total";

/// The measurements of one client. Made once, so that none costs a look-up later.
pub(crate) struct Meters {
    waits: [Histogram; Ended::ALL.len()],
    waiters: Gauge,
    holds: Gauge,
    margin: Histogram,
    losses: [Counter; Loss::ALL.len()],
    wakes: [Counter; Cause::ALL.len()],
}

impl Meters {
    pub(crate) fn new(store: &'static str) -> Self {
        describe();
        let wait = |ended: Ended| histogram!(WAIT, "store" => store, "outcome" => ended.word());
        let loss = |loss: Loss| counter!(LOSSES, "store" => store, "reason" => loss.word());
        let wake = |cause: Cause| counter!(WAKES, "store" => store, "cause" => cause.word());
        Self {
            waits: Ended::ALL.map(wait),
            waiters: gauge!(WAITERS, "store" => store),
            holds: gauge!(HOLDS, "store" => store),
            margin: histogram!(MARGIN, "store" => store),
            losses: Loss::ALL.map(loss),
            wakes: Cause::ALL.map(wake),
        }
    }

    pub(crate) fn waited(&self, ended: Ended, wait: Duration) {
        self.waits[ended as usize].record(wait);
    }

    pub(crate) fn waiters(&self, change: f64) {
        self.waiters.increment(change);
    }

    pub(crate) fn holds(&self, change: f64) {
        self.holds.increment(change);
    }

    pub(crate) fn renewed(&self, margin: Duration) {
        self.margin.record(margin);
    }

    pub(crate) fn lost(&self, loss: Loss) {
        self.losses[loss as usize].increment(1);
    }

    pub(crate) fn woken(&self, cause: Cause) {
        self.wakes[cause as usize].increment(1);
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// Says what each name means. The manual's `observing` says it at length.
fn describe() {
    metrics::describe_histogram!(
        WAIT,
        Unit::Seconds,
        "How long a call that takes a lock took, by its outcome"
    );
    metrics::describe_gauge!(WAITERS, Unit::Count, "Calls that wait for a lock");
    metrics::describe_gauge!(
        HOLDS,
        Unit::Count,
        "Holds that are neither lost nor given back"
    );
    metrics::describe_histogram!(
        MARGIN,
        Unit::Seconds,
        "What was left of a lease when its renewal was confirmed"
    );
    metrics::describe_counter!(LOSSES, Unit::Count, "Holds that were lost, by the reason");
    metrics::describe_counter!(WAKES, Unit::Count, "Waiters that were woken, by the cause");
    metrics::describe_counter!(
        RECONNECTS,
        Unit::Count,
        "Connections that were made again, by what they are for"
    );
}
