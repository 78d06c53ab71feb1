//! The plain lock, as many libraries keep it: string `name` → the holder's token.

use std::time::Duration;

use super::fence::{NO_NUMBER, no_number, parse, token};
use super::mutex::{Acquired, GONE, NO_LOCK, Released, UNLOCKED, no_lock, remaining};
use super::renew::{Renewal, held};
use super::{Args, Operation, Raw, Script, State};
use crate::error::{Error, Result};
use crate::model::{HoldId, Name, Now, Ttl};

pub(crate) const ACQUIRE: Script = Script {
    name: "plain_acquire",
    text: include_str!("lua/plain_acquire.lua"),
};
pub(crate) const RELEASE: Script = Script {
    name: "plain_release",
    text: include_str!("lua/plain_release.lua"),
};
pub(crate) const RENEW: Script = Script {
    name: "plain_renew",
    text: include_str!("lua/plain_renew.lua"),
};
pub(crate) const FORCE_UNLOCK: Script = Script {
    name: "plain_force_unlock",
    text: include_str!("lua/plain_force_unlock.lua"),
};
pub(crate) const INSPECT: Script = Script {
    name: "plain_inspect",
    text: include_str!("lua/plain_inspect.lua"),
};

/// What is longer is no token, but somebody's document.
const LONGEST: usize = 1024;

/// Takes the lock.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) name: Name,
    pub(crate) hold: HoldId,
    pub(crate) ttl: Ttl,
    /// Where tokens are counted, if one is asked for.
    pub(crate) token_key: Option<String>,
}

impl Operation for Acquire {
    const SCRIPT: Script = ACQUIRE;
    type Reply = Acquired;

    fn keys(&self) -> Vec<&str> {
        let token_key = self.token_key.as_deref();
        [self.name.as_str()].into_iter().chain(token_key).collect()
    }

    fn args(&self, out: &mut Args) {
        out.text(self.hold.as_str()).number(self.ttl.as_millis());
    }

    fn parse(raw: Raw) -> Result<Acquired> {
        match raw {
            Raw::Int(NO_NUMBER) => Err(no_number()),
            Raw::Int(ttl) => Ok(Acquired::Busy(remaining(ttl))),
            other => parse(&other).map(Acquired::Held),
        }
    }

    fn apply(&self, state: &mut State, now: Now) -> Result<Acquired> {
        let key = self.name.as_str();
        let have = state.text(key)?;
        let mine = have == Some(self.hold.as_str());
        if have.is_some() && !mine {
            return Ok(Acquired::Busy(remaining(state.pttl(key, now.mono_ms))));
        }
        let token = token(state, self.token_key.as_deref(), mine, now)?;
        if !mine {
            state.put_text(key, self.hold.as_str());
        }
        state.prolong(key, self.ttl.as_millis(), now.mono_ms);
        Ok(Acquired::Held(token))
    }
}

/// Frees the lock and tells the waiters.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) name: Name,
    pub(crate) hold: HoldId,
}

impl Operation for Release {
    const SCRIPT: Script = RELEASE;
    type Reply = Released;

    fn keys(&self) -> Vec<&str> {
        vec![self.name.as_str()]
    }

    fn args(&self, out: &mut Args) {
        out.text(self.hold.as_str());
        out.text(self.name.plain_channel()).text("PUBLISH");
    }

    fn parse(raw: Raw) -> Result<Released> {
        match raw.int()? {
            2 => Ok(Released::Freed { announced: false }),
            1 => Ok(Released::Freed { announced: true }),
            GONE => Ok(Released::Gone),
            other => Err(Error::protocol(format!("the release replied {other}"))),
        }
    }

    fn apply(&self, state: &mut State, _now: Now) -> Result<Released> {
        let key = self.name.as_str();
        if state.text(key)? != Some(self.hold.as_str()) {
            return Ok(Released::Gone);
        }
        state.remove(key);
        state.publish(&self.name.plain_channel(), UNLOCKED);
        Ok(Released::Freed { announced: true })
    }
}

/// Renews many holds, all in one slot. Replies whether each is held, in order.
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
            let have = state.text(renewal.name.as_str());
            let held = have.is_ok_and(|have| have == Some(renewal.hold.as_str()));
            if held {
                renewal.prolong(state, now);
            }
            held
        };
        Ok(self.0.iter().map(renewed).collect())
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
        out.text(self.name.plain_channel()).text("PUBLISH");
    }

    fn parse(raw: Raw) -> Result<bool> {
        super::mutex::ForceUnlock::parse(raw)
    }

    fn apply(&self, state: &mut State, _now: Now) -> Result<bool> {
        let key = self.name.as_str();
        match state.text(key)? {
            None => return Ok(false),
            Some(value) if value.len() > LONGEST => return Err(no_lock()),
            Some(_) => {}
        }
        state.remove(key);
        state.publish(&self.name.plain_channel(), UNLOCKED);
        Ok(true)
    }
}

/// Looks at the lock.
#[derive(Clone, Debug)]
pub(crate) struct Inspect {
    pub(crate) name: Name,
}

/// What stands under a plain lock's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inspected {
    pttl: i64,
    /// The holder's token as it can be shown.
    pub(crate) holder: Option<HoldId>,
    /// It is shown in another form than it has: what is shown is nobody's token.
    escaped: bool,
}

impl Inspected {
    /// What is left of the lease, if it ends by itself.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        remaining(self.pttl)
    }

    /// Whether that hold has it.
    pub(crate) fn is_held_by(&self, hold: &HoldId) -> bool {
        !self.escaped && self.holder.as_ref() == Some(hold)
    }

    fn of(pttl: i64, value: Option<&[u8]>) -> Self {
        let holder = value.map(shown);
        let bare = holder.as_ref().map(|shown| shown.as_str().as_bytes());
        let escaped = bare != value;
        Self {
            pttl,
            holder,
            escaped,
        }
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
        match raw.list()?.as_slice() {
            [Raw::Int(NO_LOCK)] => Err(no_lock()),
            [Raw::Int(pttl)] => Ok(Inspected::of(*pttl, None)),
            [Raw::Int(pttl), Raw::Bytes(value)] => Ok(Inspected::of(*pttl, Some(value))),
            other => Err(Error::protocol(format!("the look replied {other:?}"))),
        }
    }

    fn apply(&self, state: &mut State, now: Now) -> Result<Inspected> {
        let key = self.name.as_str();
        let value = state.text(key)?;
        if value.is_some_and(|value| value.len() > LONGEST) {
            return Err(no_lock());
        }
        let pttl = state.pttl(key, now.mono_ms);
        Ok(Inspected::of(pttl, value.map(str::as_bytes)))
    }
}

/// Others put anything there, also random bytes: those are escaped, so that any can be shown.
fn shown(value: &[u8]) -> HoldId {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => HoldId::found(text),
        Ok(_) | Err(_) => HoldId::found(&value.escape_ascii().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_others_use_as_a_token_can_be_shown() {
        let base64 = "f0VMRgIBAQAAAAAAAAAAAA==";
        assert_eq!(shown(base64.as_bytes()).as_str(), base64);
        assert_eq!(shown(b"\x1b[2J\xff").as_str(), r"\x1b[2J\xff");
        assert_eq!(shown(b"").as_str(), "");
    }

    #[test]
    fn a_token_that_is_shown_in_another_form_is_not_held_by_that_form() {
        let raw = |value: &[u8]| Raw::List(vec![Raw::Int(1000), Raw::Bytes(value.to_vec())]);
        let held = |value: &[u8]| {
            let seen = Inspect::parse(raw(value)).unwrap();
            seen.is_held_by(seen.holder.as_ref().unwrap())
        };
        assert!(held(b"token"));
        assert!(held(br"\xff"));
        assert!(!held(b"\xff"));
        assert!(!held(b"token\n"));
    }
}
