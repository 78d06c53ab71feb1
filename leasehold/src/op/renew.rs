//! Renewal: one batch for many holds, whatever their kind of lock.

use super::{Args, Operation, Raw, Script, State};
use crate::error::{Error, Result};
use crate::model::{HoldId, Name, Now, Ttl};

pub(crate) const RENEW: Script = Script {
    name: "renew",
    text: include_str!("lua/renew.lua"),
};

/// One hold of a batch; without a TTL it is only looked at.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) name: Name,
    pub(crate) hold: HoldId,
    pub(crate) ttl: Option<Ttl>,
}

impl Renewal {
    pub(crate) fn args(&self, out: &mut Args) {
        out.text(self.hold.as_str())
            .number(self.ttl.map_or(0, Ttl::as_millis));
    }

    /// Renews what is held, unless it is only looked at.
    pub(crate) fn prolong(&self, state: &mut State, now: Now) {
        if let Some(ttl) = self.ttl {
            state.prolong(self.name.as_str(), ttl.as_millis(), now.mono_ms);
        }
    }
}

/// Reads the reply to a batch.
pub(crate) fn held(raw: Raw) -> Result<Vec<bool>> {
    raw.list()?
        .iter()
        .map(|item| Ok(item.int()? == 1))
        .collect()
}

/// Renews many holds that are fields of hashes, all in one slot. Replies whether each is held, in
/// order.
#[derive(Clone, Debug)]
pub(crate) struct Batch(pub(crate) Vec<Renewal>);

impl Operation for Batch {
    const SCRIPT: Script = RENEW;
    type Reply = Vec<bool>;

    fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|renewal| renewal.name.as_str()).collect()
    }

    fn args(&self, out: &mut Args) {
        self.0.iter().for_each(|renewal| renewal.args(out));
    }

    fn parse(raw: Raw) -> Result<Vec<bool>> {
        held(raw)
    }

    fn apply(&self, state: &mut State, now: Now) -> Result<Vec<bool>> {
        let renewed = |renewal: &Renewal| {
            let key = renewal.name.as_str();
            let count = match state.count(key, renewal.hold.as_str()) {
                Ok(count) => count,
                Err(Error::Protocol(_)) => 0,
                Err(other) => return Err(other),
            };
            if count > 0 {
                renewal.prolong(state, now);
            }
            Ok(count > 0)
        };
        self.0.iter().map(renewed).collect()
    }
}
