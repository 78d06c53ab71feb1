//! What an error means: whether the command ran, and what the caller is told.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerError};

use crate::error::{Error, Refusal};
use crate::op;

/// What a server's error says about one command.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) error: Error,
    /// Certainly nothing was changed, so nothing of the command is left behind.
    pub(super) untouched: bool,
    /// The connection is of no use any more: another one may find a better server, or log in.
    pub(super) redial: bool,
}

impl Verdict {
    fn untouched(error: Error) -> Self {
        Self {
            error,
            untouched: true,
            redial: false,
        }
    }

    fn redial(error: Error) -> Self {
        Self {
            redial: true,
            ..Self::untouched(error)
        }
    }

    /// An error that a script may raise after it has written.
    fn perhaps_touched(error: Error) -> Self {
        Self {
            untouched: false,
            ..Self::untouched(error)
        }
    }
}

/// The code words that may stand inside the text of an error that a script raised.
const CODES: [&str; 12] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "READONLY",
    "OOM",
    "WRONGTYPE",
    "LOADING",
    "MASTERDOWN",
    "BUSY",
    "CLUSTERDOWN",
    "NOREPLICAS",
    "MISCONF",
];

/// Reads a server's error in reply to a command on `key`.
pub(super) fn judge(error: &ServerError, key: &str) -> Verdict {
    let words = words(error);
    let lower = words.to_ascii_lowercase();
    if lower.contains("unknown command") || lower.contains("unknown subcommand") {
        return Verdict::untouched(Error::Refused(Refusal::ScriptsDisabled(words)));
    }
    // Rights inside a script are looked at call by call, so an earlier call may have written.
    if lower.contains("user executing the script") || lower.contains("acl failure in script") {
        return Verdict::perhaps_touched(Error::Refused(Refusal::Permission(words)));
    }
    if lower.contains("max number of clients") {
        return Verdict::untouched(Error::unavailable(words));
    }
    match code(error.code(), &words) {
        "NOAUTH" | "WRONGPASS" => Verdict::redial(Error::Refused(Refusal::Auth(words))),
        "NOPERM" | "DENIED" => Verdict::untouched(Error::Refused(Refusal::Permission(words))),
        "READONLY" => Verdict::redial(Error::Refused(Refusal::ReadOnly(words))),
        "OOM" => Verdict::untouched(Error::Refused(Refusal::OutOfMemory(words))),
        "WRONGTYPE" => Verdict::untouched(op::wrong_type(key)),
        "LOADING" | "MASTERDOWN" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "NOREPLICAS"
        | "MISCONF" | "NOSCRIPT" => Verdict::untouched(Error::unavailable(words)),
        _ => Verdict::perhaps_touched(Error::protocol(words)),
    }
}

/// The code word of an error. Old servers bury that of an error raised inside a script.
fn code<'a>(code: &'a str, words: &'a str) -> &'a str {
    if code != "ERR" && !code.starts_with('@') {
        return code;
    }
    let mut inside = words
        .split_whitespace()
        .map(|word| word.trim_start_matches('-'));
    inside.find(|word| CODES.contains(word)).unwrap_or(code)
}

/// The server's own words, on one line and without what it repeats of the command.
pub(super) fn words(error: &ServerError) -> String {
    let details = error.details().unwrap_or_default();
    let details = details
        .split(", with args beginning with")
        .next()
        .unwrap_or_default();
    format!("{} {}", error.code(), details.trim_end())
}

/// Why a connection could not be set up. `server` is its address, which is no secret.
pub(super) fn refused_connection(error: RedisError, server: &str) -> Error {
    if let Ok(error) = ServerError::try_from(error.clone()) {
        return match judge(&error, "").error {
            // Without the handshake's command nothing works, scripts or not.
            Error::Refused(Refusal::ScriptsDisabled(words)) => Error::protocol(words),
            other => other,
        };
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            Error::Refused(Refusal::Auth("the server refused the password".to_owned()))
        }
        ErrorKind::RESP3NotSupported => {
            Error::protocol("the server is too old: it does not know RESP3")
        }
        // The only setting that the handshake sends beside the log-in is the database number.
        ErrorKind::Server(_) => {
            let words = error.detail().unwrap_or("no reason given").to_owned();
            if words.contains("no permissions") {
                Error::Refused(Refusal::Permission(words))
            } else {
                Error::config(format!("the server refused the database number: {}", words))
            }
        }
        _ => unreachable(server, error),
    }
}

/// The server cannot be reached; no command was sent.
pub(super) fn unreachable(
    server: &str,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::Unavailable {
        message: format!("cannot connect to {server}: {cause}"),
        source: Some(Arc::new(cause)),
        outcome_unknown: false,
    }
}

/// The connection failed under a command that may have run.
pub(super) fn broken(server: &str, cause: RedisError) -> Error {
    Error::Unavailable {
        message: format!("the connection to {server} was lost: {cause}"),
        source: Some(Arc::new(cause)),
        outcome_unknown: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(reply: &str) -> Verdict {
        let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        let redis::Value::ServerError(error) = value else {
            panic!("{reply} is no error");
        };
        judge(&error, "a key")
    }

    #[test]
    fn a_refusal_is_told_by_its_code_word_wherever_it_stands() {
        for (reply, said) in [
            ("NOAUTH Authentication required.", "authentication"),
            ("WRONGPASS invalid username-password pair", "authentication"),
            ("NOPERM this user has no permissions", "permission"),
            ("READONLY You can't write", "read-only"),
            (
                "ERR Error running script (call to f_0): @user_script:5: -READONLY You can't",
                "read-only",
            ),
            (
                "@user_script: 12: -OOM command not allowed",
                "out of memory",
            ),
            ("OOM command not allowed", "out of memory"),
            (
                "ERR unknown command 'EVALSHA', with args beginning with: 'a'",
                "scripts are disabled",
            ),
            ("WRONGTYPE Operation against a key", "another type"),
            (
                "ERR Error running script: @user_script: 5: WRONGTYPE Operation",
                "another type",
            ),
            ("LOADING Redis is loading", "unavailable"),
            ("ERR max number of clients reached", "unavailable"),
        ] {
            let verdict = judged(reply);
            let text = verdict.error.to_string();
            assert!(
                text.contains(said) && verdict.untouched,
                "{reply}: {verdict:?}"
            );
        }
    }

    #[test]
    fn a_right_missed_inside_a_script_may_have_been_missed_too_late() {
        for reply in [
            "ERR The user executing the script can't run this command or subcommand script: 1",
            "NOPERM The user executing the script can't run this command or subcommand",
            "ERR ACL failure in script: User u has no permissions to run the 'pexpire' command",
        ] {
            let verdict = judged(reply);
            let denied = matches!(verdict.error, Error::Refused(Refusal::Permission(_)));
            assert!(denied && !verdict.untouched, "{reply}: {verdict:?}");
        }
    }

    #[test]
    fn a_server_that_quotes_the_log_in_is_not_quoted() {
        let quoting = "ERR unknown command 'HELLO', with args beginning with: 'AUTH' 'u' 'hunter2'";
        let value = redis::parse_redis_value(format!("-{quoting}\r\n").as_bytes()).unwrap();
        let error = refused_connection(value.extract_error().unwrap_err(), "host:1");
        assert!(matches!(error, Error::Protocol(_)), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn an_unknown_error_keeps_the_servers_words_and_says_nothing_of_the_outcome() {
        let verdict = judged("ERR something new");
        assert!(matches!(&verdict.error, Error::Protocol(words) if words == "ERR something new"));
        assert!(!verdict.untouched);
    }
}
