//! The plain reentrant lock, as Redisson keeps it: hash `name`, field `uuid:digits` → count.

use std::time::Duration;

use super::fence::{NO_NUMBER, no_number, parse, token};
use super::{Args, Operation, Raw, Script, State};
use crate::error::{Error, Result};
use crate::model::{HoldId, Name, Now, Token, Ttl};
use crate::planted::{Fault, planted};

pub(crate) const ACQUIRE: Script = Script {
    name: "mutex_acquire",
    text: include_str!("lua/mutex_acquire.lua"),
};
pub(crate) const RELEASE: Script = Script {
    name: "mutex_release",
    text: include_str!("lua/mutex_release.lua"),
};
pub(crate) const FORCE_UNLOCK: Script = Script {
    name: "mutex_force_unlock",
    text: include_str!("lua/mutex_force_unlock.lua"),
};
pub(crate) const INSPECT: Script = Script {
    name: "mutex_inspect",
    text: include_str!("lua/mutex_inspect.lua"),
};

/// What waiters are told when a lock is freed.
pub(super) const UNLOCKED: &str = "0";
/// The step's base is gone, or there is no such hold.
pub(super) const GONE: i64 = -3;
/// The key is no lock.
pub(super) const NO_LOCK: i64 = -4;

/// Reaches a hold count: 1 takes the lock, more re-enters it.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) name: Name,
    pub(crate) hold: HoldId,
    pub(crate) count: u64,
    pub(crate) ttl: Ttl,
    /// Where tokens are counted, if one is asked for.
    pub(crate) token_key: Option<String>,
}

/// What came of an [`Acquire`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acquired {
    /// With the token of the hold, if one was asked for.
    Held(Option<Token>),
    /// Somebody else holds; what is left of that lease, if it ends by itself.
    Busy(Option<Duration>),
    /// The count before this one is not there.
    Gone,
}

impl Operation for Acquire {
    const SCRIPT: Script = ACQUIRE;
    type Reply = Acquired;

    fn keys(&self) -> Vec<&str> {
        let token_key = self.token_key.as_deref();
        [self.name.as_str()].into_iter().chain(token_key).collect()
    }

    fn args(&self, out: &mut Args) {
        out.text(self.hold.as_str())
            .number(self.count)
            .number(self.ttl.as_millis());
    }

    fn parse(raw: Raw) -> Result<Acquired> {
        match raw {
            Raw::Int(GONE) => Ok(Acquired::Gone),
            Raw::Int(NO_NUMBER) => Err(no_number()),
            Raw::Int(ttl) => Ok(Acquired::Busy(remaining(ttl))),
            other => parse(&other).map(Acquired::Held),
        }
    }

    fn apply(&self, state: &mut State, now: Now) -> Result<Acquired> {
        let key = self.name.as_str();
        let have = state.count(key, self.hold.as_str())?;
        let first = self.count == 1 && state.value(key).is_none();
        if first || (have > 0 && (have == self.count || have + 1 == self.count)) {
            let token = token(state, self.token_key.as_deref(), have > 0, now)?;
            state.set_field(key, self.hold.as_str(), self.count)?;
            state.prolong(key, self.ttl.as_millis(), now.mono_ms);
            return Ok(Acquired::Held(token));
        }
        if have > 0 || self.count > 1 {
            return Ok(Acquired::Gone);
        }
        Ok(Acquired::Busy(remaining(state.pttl(key, now.mono_ms))))
    }
}

/// Leaves a hold count: 0 frees the lock and tells the waiters.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) name: Name,
    pub(crate) hold: HoldId,
    pub(crate) leave: u64,
    pub(crate) ttl: Ttl,
}

/// What came of a [`Release`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    /// Free; `announced` says whether the waiters could be told.
    Freed {
        announced: bool,
    },
    StillHeld,
    /// There was no such hold.
    Gone,
}

impl Operation for Release {
    const SCRIPT: Script = RELEASE;
    type Reply = Released;

    fn keys(&self) -> Vec<&str> {
        vec![self.name.as_str()]
    }

    fn args(&self, out: &mut Args) {
        out.text(self.hold.as_str())
            .number(self.leave)
            .number(self.ttl.as_millis());
        out.text(self.name.mutex_channel()).text("PUBLISH");
    }

    fn parse(raw: Raw) -> Result<Released> {
        match raw.int()? {
            2 => Ok(Released::Freed { announced: false }),
            1 => Ok(Released::Freed { announced: true }),
            0 => Ok(Released::StillHeld),
            GONE => Ok(Released::Gone),
            other => Err(Error::protocol(format!("the release replied {other}"))),
        }
    }

    fn apply(&self, state: &mut State, now: Now) -> Result<Released> {
        let key = self.name.as_str();
        let have = state.count(key, self.hold.as_str())?;
        let have = if planted(Fault::ReleaseWithoutOwner) {
            self.leave + 1
        } else {
            have
        };
        if have == 0 || (self.leave > 0 && have != self.leave && have != self.leave + 1) {
            return Ok(Released::Gone);
        }
        if self.leave > 0 {
            state.set_field(key, self.hold.as_str(), self.leave)?;
            state.prolong(key, self.ttl.as_millis(), now.mono_ms);
            return Ok(Released::StillHeld);
        }
        state.remove(key);
        state.publish(&self.name.mutex_channel(), UNLOCKED);
        Ok(Released::Freed { announced: true })
    }
}

/// Breaks the lock, whoever holds it, and tells the waiters.
#[derive(Clone, Debug)]
pub(crate) struct ForceUnlock {
    pub(crate) name: Name,
}

impl Operation for ForceUnlock {
    const SCRIPT: Script = FORCE_UNLOCK;
    /// Whether somebody held it.
    type Reply = bool;
    /// It names no hold, so a second one might break the lock of whoever came next.
    const REPEATABLE: bool = false;

    fn keys(&self) -> Vec<&str> {
        vec![self.name.as_str()]
    }

    fn args(&self, out: &mut Args) {
        out.text(self.name.mutex_channel()).text("PUBLISH");
    }

    fn parse(raw: Raw) -> Result<bool> {
        match raw.int()? {
            1 | 2 => Ok(true),
            0 => Ok(false),
            NO_LOCK => Err(no_lock()),
            other => Err(Error::protocol(format!("the force-unlock replied {other}"))),
        }
    }

    fn apply(&self, state: &mut State, _now: Now) -> Result<bool> {
        let key = self.name.as_str();
        let fields = state.hash(key)?;
        if fields.is_empty() {
            return Ok(false);
        }
        if !is_mutex(
            fields
                .iter()
                .map(|(field, value)| (field.as_str(), value.as_str())),
        ) {
            return Err(no_lock());
        }
        state.remove(key);
        state.publish(&self.name.mutex_channel(), UNLOCKED);
        Ok(true)
    }
}

/// Looks at the lock.
#[derive(Clone, Debug)]
pub(crate) struct Inspect {
    pub(crate) name: Name,
}

/// What stands under a lock's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inspected {
    /// What is left of the lease: -2 for no key, -1 for no end.
    pub(crate) pttl: i64,
    /// Each field with its value; one field for a held mutex.
    pub(crate) fields: Vec<(String, String)>,
}

impl Inspected {
    /// What is left of the lease, if it ends by itself.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        remaining(self.pttl)
    }

    /// The count of one hold, whatever else stands there; 0 if it does not hold.
    pub(crate) fn count_of(&self, hold: &HoldId) -> u64 {
        let count = |(field, count): &(String, String)| {
            (field == hold.as_str()).then(|| count.parse().unwrap_or(0))
        };
        self.fields.iter().find_map(count).unwrap_or(0)
    }

    /// The hold and its count, if a mutex of this name is held.
    pub(crate) fn holder(&self) -> Result<Option<(HoldId, u64)>> {
        if self.fields.is_empty() {
            return Ok(None);
        }
        let pairs = self
            .fields
            .iter()
            .map(|(field, value)| (field.as_str(), value.as_str()));
        if !is_mutex(pairs) {
            return Err(no_lock());
        }
        let (field, value) = &self.fields[0];
        Ok(Some((
            HoldId::found(field),
            value.parse().unwrap_or(u64::MAX),
        )))
    }
}

impl Operation for Inspect {
    const SCRIPT: Script = INSPECT;
    type Reply = Inspected;

    fn keys(&self) -> Vec<&str> {
        vec![self.name.as_str()]
    }

    fn args(&self, _out: &mut Args) {}

    fn parse(raw: Raw) -> Result<Inspected> {
        let items = raw.list()?;
        let pttl = items.first().map_or(Ok(NO_LOCK), Raw::int)?;
        if pttl == NO_LOCK {
            return Err(no_lock());
        }
        let pair = |pair: &[Raw]| Ok((pair[0].text()?, pair[1].text()?));
        let mut fields = items[1..]
            .chunks_exact(2)
            .map(pair)
            .collect::<Result<Vec<_>>>()?;
        fields.sort();
        Ok(Inspected { pttl, fields })
    }

    fn apply(&self, state: &mut State, now: Now) -> Result<Inspected> {
        let fields = state.hash(self.name.as_str())?.into_iter().collect();
        Ok(Inspected {
            pttl: state.pttl(self.name.as_str(), now.mono_ms),
            fields,
        })
    }
}

pub(super) fn no_lock() -> Error {
    Error::protocol("the key holds something that is no mutex")
}

pub(super) fn remaining(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().map(Duration::from_millis)
}

/// A mutex is a hash of exactly one hold with its count.
fn is_mutex<'a>(mut fields: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    let Some((field, count)) = fields.next() else {
        return false;
    };
    let counts = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
    counts && field.parse::<HoldId>().is_ok() && fields.next().is_none()
}
