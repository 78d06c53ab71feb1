//! Names of locks, and the names derived from them.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// The name of a lock as the server sees it: any text whose braces keep its keys in one slot.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(Arc<str>);

impl Name {
    /// Checks a name.
    ///
    /// A name without braces is wrapped in a hash tag wherever a sibling name is derived. A name
    /// with an opening brace keeps its own tag, so that tag must be usable.
    pub(crate) fn new(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::config("the name is empty"));
        }
        match (text.find('{'), text.contains('}')) {
            (None, false) => Ok(Self(text.into())),
            (Some(open), _) if tag_after(text, open).is_some() => Ok(Self(text.into())),
            _ => Err(Error::config(format!(
                "the braces of the name {text:?} break its slot: \
                 use none, or one tag such as a{{b}}c"
            ))),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that decides the slot: the text between the first braces, else the whole name.
    pub(crate) fn tag(&self) -> &str {
        self.0
            .find('{')
            .and_then(|open| tag_after(&self.0, open))
            .unwrap_or(&self.0)
    }

    /// `prefix:{name}`, or `prefix:name` where the name has braces of its own.
    pub(crate) fn prefixed(&self, prefix: &str) -> String {
        if self.0.contains('{') {
            format!("{prefix}:{}", self.0)
        } else {
            format!("{prefix}:{{{}}}", self.0)
        }
    }

    /// The channel on which a released mutex is announced.
    pub(crate) fn mutex_channel(&self) -> String {
        self.prefixed("redisson_lock__channel")
    }

    /// The channel on which a released lock of the plain format is announced.
    pub(crate) fn plain_channel(&self) -> String {
        self.prefixed("leasehold_plain")
    }

    /// The key that holds the newest fencing token of this lock.
    pub(crate) fn token_key(&self) -> String {
        self.prefixed("redisson_lock_token")
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

fn tag_after(text: &str, open: usize) -> Option<&str> {
    let rest = &text[open + 1..];
    rest.find('}')
        .filter(|&close| close > 0)
        .map(|close| &rest[..close])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_share_the_hash_tag() {
        let plain = Name::new("foo").unwrap();
        assert_eq!(plain.mutex_channel(), "redisson_lock__channel:{foo}");
        assert_eq!(plain.plain_channel(), "leasehold_plain:{foo}");
        assert_eq!(plain.token_key(), "redisson_lock_token:{foo}");
        assert_eq!(plain.tag(), "foo");
        let tagged = Name::new("app:{u1}:lock").unwrap();
        assert_eq!(
            tagged.mutex_channel(),
            "redisson_lock__channel:app:{u1}:lock"
        );
        assert_eq!(tagged.tag(), "u1");
    }

    #[test]
    fn names_that_break_their_slot_are_refused() {
        for bad in ["", "{x", "{}x", "a}b", "}{", "{}{a}"] {
            assert!(matches!(Name::new(bad), Err(Error::Config(_))), "{bad:?}");
        }
        for good in ["a", "a:b:c", "{a}", "x{a}y{", "{a}}", " ", "\u{1F512}"] {
            assert!(Name::new(good).is_ok(), "{good:?}");
        }
    }
}
