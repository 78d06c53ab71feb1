//! Fencing tokens: what the acquire scripts do with the key that counts them.

use super::{Raw, State};
use crate::error::{Error, Result};
use crate::model::{Now, Token};

/// The reply for a token key that holds no number.
pub(crate) const NO_NUMBER: i64 = -5;

pub(crate) fn no_number() -> Error {
    Error::protocol("the key of the fencing tokens holds no number")
}

/// Reads a token out of a reply: none where none was asked for.
pub(crate) fn parse(raw: &Raw) -> Result<Option<Token>> {
    match raw {
        Raw::Nil => Ok(None),
        other => number(&other.text()?).map(Some),
    }
}

/// The token of a hold: the one that it has when it is there `again`, else a new one.
pub(crate) fn token(
    state: &mut State,
    key: Option<&str>,
    again: bool,
    now: Now,
) -> Result<Option<Token>> {
    let Some(key) = key else { return Ok(None) };
    let last = state.text(key).map_err(|_| no_number())?;
    if let (true, Some(text)) = (again, last) {
        return number(text).map(Some);
    }
    let last = last.map_or(Ok(0), str::parse::<i64>);
    let next = last.ok().and_then(|last| last.checked_add(1));
    let next = next.ok_or_else(no_number)?;
    // So that a store that has forgotten its tokens does not begin again below them.
    let floor = ((now.epoch_us / 1_000_000) << 20) + now.epoch_us % 1_000_000;
    let minted = u64::try_from(next).unwrap_or(0).max(floor);
    state.put_text(key, &minted.to_string());
    Ok(Some(Token::new(minted)))
}

fn number(text: &str) -> Result<Token> {
    text.parse().map(Token::new).map_err(|_| no_number())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Option<&str> = Some("token");
    const SECOND: u64 = 1_000_000;

    fn mint(state: &mut State, epoch_us: u64) -> u64 {
        let now = Now {
            mono_ms: 0,
            epoch_ms: epoch_us / 1_000,
            epoch_us,
        };
        token(state, KEY, false, now).unwrap().unwrap().get()
    }

    #[test]
    fn tokens_rise_whether_time_passes_or_not_and_are_not_below_the_clock() {
        let mut state = State::default();
        let first = mint(&mut state, 5 * SECOND + 7);
        assert_eq!(first, (5 << 20) + 7);
        assert_eq!(mint(&mut state, 5 * SECOND + 7), first + 1);
        assert_eq!(mint(&mut state, 4 * SECOND), first + 2);
        assert_eq!(mint(&mut state, 6 * SECOND), 6 << 20);
        assert!(mint(&mut State::default(), 6 * SECOND + 1) > 6 << 20);
    }

    #[test]
    fn the_last_number_is_not_passed() {
        let mut state = State::default();
        state.put_text("token", &(i64::MAX - 1).to_string());
        assert_eq!(mint(&mut state, 0), i64::MAX.unsigned_abs());
        let now = Now {
            mono_ms: 0,
            epoch_ms: 0,
            epoch_us: 0,
        };
        assert!(token(&mut state, KEY, false, now).is_err());
    }
}
