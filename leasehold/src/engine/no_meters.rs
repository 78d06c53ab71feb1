//! Measures nothing: the feature `metrics` is off.

use std::time::Duration;

use super::observe::{Cause, Ended, Loss};

#[derive(Debug)]
pub(crate) struct Meters;

impl Meters {
    pub(crate) fn new(_: &'static str) -> Self {
        Self
    }

    pub(crate) fn waited(&self, _: Ended, _: Duration) {}

    pub(crate) fn waiters(&self, _: f64) {}

    pub(crate) fn holds(&self, _: f64) {}

    pub(crate) fn renewed(&self, _: Duration) {}

    pub(crate) fn lost(&self, _: Loss) {}

    pub(crate) fn woken(&self, _: Cause) {}
}
