//! Taking a lock, with a person and a service manager in mind.

use std::convert::Infallible;

use leasehold::{Error, Mutex, MutexGuard};

use super::parting::Parting;
use super::waiting;
use crate::config::Patience;
use crate::exit::Exit;
use crate::output::complain;
use crate::signals::Signals;

/// What is to be taken.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) mutex: &'a Mutex,
    pub(super) patience: Patience,
    /// The exit when another has it.
    pub(super) busy: Exit,
}

impl Wanted<'_> {
    /// Takes the lock; or says why not, and how the command is to end.
    pub(super) async fn take(
        &self,
        signals: &mut Signals,
        parting: &mut Parting,
    ) -> Result<Result<MutexGuard, Exit>, Error> {
        let taken = tokio::select! {
            biased;
            number = signals.end() => {
                parting.hurried = true;
                return Ok(Err(Exit::Signal(number)));
            }
            taken = self.obtain() => taken?,
            never = self.show() => match never {},
        };
        Ok(taken.ok_or_else(|| {
            complain(&format!("{} is held by another: not acquired", self.name));
            self.busy
        }))
    }

    async fn obtain(&self) -> Result<Option<MutexGuard>, Error> {
        match self.patience {
            Patience::Forever => self.mutex.lock().await.map(Some),
            Patience::Once => self.mutex.try_lock().await,
            Patience::For(wait) => self.mutex.try_lock_for(wait).await,
        }
    }

    /// Tells a person about the wait, until dropped.
    async fn show(&self) -> Infallible {
        if self.patience == Patience::Forever {
            waiting::warn(self.name, self.mutex).await;
        }
        waiting::show(self.name, self.mutex).await
    }
}
