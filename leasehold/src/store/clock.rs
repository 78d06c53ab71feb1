//! The clocks of the stores, and the only place that reads one.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::model::{Moment, Now};

/// How long a timer may go without looking at a clock that counts suspend.
const LOOK: Duration = Duration::from_secs(1);

/// The clock of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// Tokio's, since the given origin: can be paused in tests.
    Tokio(Instant),
    /// The time since boot, counting suspend, common to all processes of this machine.
    Boot,
}

impl Clock {
    /// A clock that follows the runtime of the caller.
    pub(crate) fn tokio() -> Self {
        Self::Tokio(Instant::now())
    }

    pub(crate) fn now(self) -> Moment {
        match self {
            Self::Tokio(origin) => Moment::from_origin(origin.elapsed()),
            Self::Boot => Moment::from_origin(read(ClockId::Boottime)),
        }
    }

    /// The present as an operation sees it.
    pub(crate) fn present(self) -> Now {
        let whole = |units: u128| u64::try_from(units).unwrap_or(u64::MAX);
        let epoch = read(ClockId::Realtime);
        Now {
            mono_ms: whole(self.now().since_origin().as_millis()),
            epoch_ms: whole(epoch.as_millis()),
            epoch_us: whole(epoch.as_micros()),
        }
    }

    /// Returns when the clock has reached `moment`.
    ///
    /// Tokio's timers stop in suspend, so a clock that counts suspend is looked at once a second.
    pub(crate) async fn sleep_until(self, moment: Moment) {
        loop {
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            let nap = match self {
                Self::Tokio(_) => left,
                Self::Boot => left.min(LOOK),
            };
            tokio::time::sleep(nap).await;
        }
    }

    /// Waits for `future`, but no longer than until `moment`.
    pub(crate) async fn limit<F: Future>(self, moment: Moment, future: F) -> Option<F::Output> {
        if moment == Moment::NEVER {
            // No timer at all, so that ten thousand waiters cost nothing while they wait.
            return Some(future.await);
        }
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep_until(moment) => None,
        }
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
