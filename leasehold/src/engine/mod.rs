//! The loops that every kind of lock shares: acquire, watchdog, hub, reaper.

pub(crate) mod acquire;
pub(crate) mod adopt;
mod chance;
pub(crate) mod claim;
pub(crate) mod hold;
pub(crate) mod hub;
pub(crate) mod life;
#[cfg(feature = "metrics")]
mod meters;
#[cfg(not(feature = "metrics"))]
#[path = "no_meters.rs"]
mod meters;
pub(crate) mod observe;
pub(crate) mod presence;
pub(crate) mod queue;
pub(crate) mod reaper;
pub(crate) mod release;
pub(crate) mod tenure;
pub(crate) mod watchdog;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::{ClientId, HoldId, Moment, Name, Owner};
use crate::store::{Clock, Introduction, Store};

pub(crate) use acquire::{Patience, Request};
pub(crate) use claim::{Claim, Kind};
pub(crate) use hold::Hold;
pub(crate) use tenure::{Grant, Stake, Tenure};

use hub::Hub;
use life::Life;
use observe::{Cause, Observer};
use presence::Presence;
use queue::Queue;
use reaper::{Debts, Reaper};
use tenure::Tenures;
use watchdog::Watchdog;

/// Limits that the engine keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For one call that does not wait for a lock: all its tries together.
    pub(crate) call: Duration,
}

/// One client's engine. Dropping the last one ends its tasks.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) debts: Debts,
    pub(crate) queue: Queue,
    names: Names,
    pub(crate) tenures: Tenures,
    pub(crate) id: ClientId,
    serial: AtomicU64,
    /// What its mutexes are unless told otherwise, so that a suite can run on each flavour.
    #[cfg(feature = "test-util")]
    pub(crate) flavour: std::sync::OnceLock<(crate::model::Wire, bool)>,
}

/// From the name that a user gives a lock to the lock's name.
#[derive(Debug)]
pub(crate) struct Names {
    /// Stands in front of every name. All else is derived from the name, so it is put there once.
    pub(crate) prefix: String,
    /// What is wrong with the settings of a client that could not report it when it was made.
    pub(crate) fault: Option<Error>,
}

impl Names {
    fn prefix(&self) -> Result<&str> {
        self.fault.clone().map_or(Ok(&self.prefix), Err)
    }

    fn name(&self, text: &str) -> Result<Name> {
        let prefix = self.prefix()?;
        if prefix.is_empty() || text.is_empty() {
            return Name::new(text);
        }
        Name::new(&format!("{prefix}{text}"))
    }
}

/// Who a client is.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) id: ClientId,
    pub(crate) introduction: Arc<Introduction>,
    pub(crate) names: Names,
}

/// What the engine's tasks share with the calls. Tasks keep it alive, and it keeps no task.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) hub: Arc<Hub>,
    pub(crate) life: Life,
    pub(crate) watchdog: Watchdog,
    pub(crate) presence: Presence,
    pub(crate) limits: Limits,
    pub(crate) counts: Counts,
    pub(crate) observer: Arc<Observer>,
}

/// What happened so far, for tests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) woken_by_message: AtomicU64,
    pub(crate) woken_by_gap: AtomicU64,
    pub(crate) woken_by_timer: AtomicU64,
    pub(crate) woken_to_look: AtomicU64,
    pub(crate) renewal_batches: AtomicU64,
}

impl Counts {
    pub(crate) fn woken(&self, cause: Cause) {
        let count = match cause {
            Cause::Message => &self.woken_by_message,
            Cause::Gap => &self.woken_by_gap,
            Cause::Timer => &self.woken_by_timer,
            Cause::Look => &self.woken_to_look,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Core {
    /// Starts the engine's tasks on the caller's runtime.
    pub(crate) fn start(
        store: Store,
        hub: Arc<Hub>,
        limits: Limits,
        identity: Identity,
    ) -> Arc<Self> {
        let clock = store.clock();
        let Identity {
            id,
            introduction,
            names,
        } = identity;
        let observer = Observer::new(store.word(), clock);
        let shared = Arc::new(Shared {
            store,
            clock,
            hub,
            life: Life::new(),
            watchdog: Watchdog::default(),
            presence: Presence::new(introduction, clock.now()),
            limits,
            counts: Counts::default(),
            observer,
        });
        watchdog::start(&shared);
        let debts = Reaper::start(Arc::clone(&shared));
        Arc::new(Self {
            shared,
            debts,
            queue: Queue::default(),
            names,
            tenures: Tenures::default(),
            id,
            serial: AtomicU64::new(1),
            #[cfg(feature = "test-util")]
            flavour: std::sync::OnceLock::new(),
        })
    }

    /// The name of the lock that a user of this client calls `text`.
    pub(crate) fn name(&self, text: &str) -> Result<Name> {
        self.names.name(text)
    }

    /// What stands in front of every name.
    pub(crate) fn prefix(&self) -> Result<&str> {
        self.names.prefix()
    }

    /// A hold id that nobody ever had.
    pub(crate) fn fresh_hold(&self) -> HoldId {
        self.id.hold(self.serial.fetch_add(1, Ordering::Relaxed))
    }

    /// An owner that nobody ever was.
    pub(crate) fn fresh_owner(&self) -> Owner {
        Owner::new(self.id, self.serial.fetch_add(1, Ordering::Relaxed))
    }

    /// Until when a call that starts now may go on.
    pub(crate) fn call_limit(&self) -> Moment {
        self.shared.clock.now().after(self.shared.limits.call)
    }

    /// Runs a question or an order that belongs to no hold; repeats it while the store is away.
    pub(crate) async fn ask<O: crate::op::Operation>(&self, op: &O) -> Result<O::Reply> {
        self.shared
            .life
            .while_open(self.shared.repeat(op, self.call_limit()))
            .await
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.life.end("its last handle was dropped");
    }
}
