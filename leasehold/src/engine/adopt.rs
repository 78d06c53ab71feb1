//! Taking over a hold that somebody else has made.

use std::sync::Arc;

use super::{Claim, Core, Grant, Hold, Kind, Request};
use crate::error::{Error, Result};
use crate::model::lease::Tracker;
use crate::model::{HoldId, LeaseTerm, Ttl};
use crate::op::renew::Renewal;
use crate::op::{mutex, plain};

impl Core {
    /// Renews the hold to the term asked for, or for a fixed one looks how long it lasts, and keeps
    /// it from then on.
    pub(crate) async fn adopt(self: &Arc<Self>, request: &Request, id: HoldId) -> Result<Grant> {
        let shared = &self.shared;
        // A repeat counts from the first, which may be the one that was run.
        let asked = shared.clock.now();
        let term = self.adopted_term(request, &id).await?;
        let claim = Claim::adopted(request.kind, &request.name, id, term);
        let tracker = Tracker::granted(term, asked);
        let observer = &shared.observer;
        let hold = Hold::granted(claim, shared.clock, tracker, None, observer);
        let hold = Arc::new(hold);
        if let Some(reason) = hold.loss() {
            return Err(Error::Lost(reason));
        }
        if !shared.watchdog.watch_new(&hold) {
            return Err(Error::config("this client has that hold already"));
        }
        // After that, so that a close either finds the hold watched or is seen here.
        if let Err(closed) = shared.life.check() {
            shared.watchdog.forget(&hold);
            return Err(closed);
        }
        Ok(Grant { hold, stake: None })
    }

    /// The term that the hold has from now on.
    async fn adopted_term(&self, request: &Request, id: &HoldId) -> Result<LeaseTerm> {
        let gone = Error::Lost("the store does not have it");
        let (name, term) = (request.name.clone(), request.term);
        match term {
            LeaseTerm::Renewed { ttl, .. } => {
                let (hold, ttl) = (id.clone(), Some(ttl));
                let renewal = Renewal { name, hold, ttl };
                let renewed = self.shared.renew(request.kind, renewal, self.call_limit());
                let held = self.shared.life.while_open(renewed).await?;
                if held { Ok(term) } else { Err(gone) }
            }
            LeaseTerm::Fixed(lease) => {
                let (held, left) = match request.kind {
                    Kind::Mutex => {
                        let seen = self.ask(&mutex::Inspect { name }).await?;
                        (seen.count_of(id) > 0, seen.remaining())
                    }
                    Kind::Plain => {
                        let seen = self.ask(&plain::Inspect { name }).await?;
                        (seen.is_held_by(id), seen.remaining())
                    }
                };
                if !held {
                    return Err(gone);
                }
                // A lock without an end is relied upon for as long as was asked for.
                Ok(LeaseTerm::Fixed(left.map_or(lease, Ttl::left)))
            }
        }
    }
}
