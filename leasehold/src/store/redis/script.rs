//! Calling a script by its hash, and loading it where the server does not have it.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{Cmd, Pipeline, ServerErrorKind, Value};

use super::error::{self, Verdict};
use crate::error::{Error, Refusal, Result};
use crate::op::{Args, Operation, Raw, SCRIPTS};

/// The hash of every script, by its name.
static HASHES: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    let hash = |text| redis::Script::new(text).get_hash().to_owned();
    SCRIPTS
        .iter()
        .map(|script| (script.name, hash(script.text)))
        .collect()
});

/// The commands that give the server every script.
pub(super) fn load_all(pipeline: &mut Pipeline) {
    for script in SCRIPTS {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text);
    }
}

/// The call of an operation's script.
pub(super) fn call<O: Operation>(op: &O) -> Result<Cmd> {
    let hash = HASHES
        .get(O::SCRIPT.name)
        .ok_or_else(|| Error::protocol("a script is not listed"))?;
    let (keys, mut args) = (op.keys(), Args::default());
    op.args(&mut args);
    let mut call = redis::cmd("EVALSHA");
    call.arg(hash).arg(keys.len());
    for key in keys {
        call.arg(key);
    }
    for arg in args.as_slice() {
        call.arg(arg);
    }
    Ok(call)
}

/// The first key of a call, for naming it in an error.
pub(super) fn first_key(call: &Cmd) -> String {
    // The command, the hash and the number of keys come before it.
    match call.args_iter().nth(3) {
        Some(redis::Arg::Simple(key)) => String::from_utf8_lossy(key).into_owned(),
        _ => String::new(),
    }
}

/// The script and its call in one piece, so that nothing comes between.
pub(super) fn load_and_call<O: Operation>(call: &Cmd) -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.cmd("SCRIPT").arg("LOAD").arg(O::SCRIPT.text);
    pipeline.add_command(call.clone());
    pipeline
}

/// Whether the server said that it does not have the script, so that nothing ran.
pub(super) fn is_missing(reply: &Value) -> bool {
    let Value::ServerError(error) = reply else {
        return false;
    };
    error.kind() == Some(ServerErrorKind::NoScript)
}

/// Why a script that could not be called could not be loaded either.
pub(super) fn load_failed(reply: &Value) -> Verdict {
    let Value::ServerError(error) = reply else {
        // Loaded, and flushed before the call: to be tried again.
        return Verdict {
            error: Error::unavailable("the server forgets scripts as they are loaded"),
            untouched: true,
            redial: false,
        };
    };
    let mut verdict = error::judge(error, "");
    verdict.untouched = true;
    if matches!(verdict.error, Error::Protocol(_)) {
        verdict.error = Error::Refused(Refusal::ScriptsDisabled(error::words(error)));
    }
    verdict
}

/// A reply in no client library's terms. An error inside a list is no reply of our scripts.
pub(super) fn raw(reply: Value) -> Result<Raw> {
    Ok(match reply {
        Value::Nil => Raw::Nil,
        Value::Int(value) => Raw::Int(value),
        Value::Boolean(value) => Raw::Int(value.into()),
        Value::BulkString(bytes) => Raw::Bytes(bytes),
        Value::SimpleString(text) => Raw::Bytes(text.into_bytes()),
        Value::Okay => Raw::Bytes(b"OK".to_vec()),
        Value::Array(items) | Value::Set(items) => {
            Raw::List(items.into_iter().map(raw).collect::<Result<_>>()?)
        }
        other => return Err(Error::protocol(format!("a script replied {other:?}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Name;
    use crate::op::mutex::Inspect;

    #[test]
    fn a_call_names_hash_keys_and_arguments() {
        let name = Name::new("a b").unwrap();
        let packed = call(&Inspect { name }).unwrap().get_packed_command();
        let packed = String::from_utf8(packed).unwrap();
        let hash = &HASHES["mutex_inspect"];
        assert_eq!(hash.len(), 40);
        assert!(packed.contains(hash.as_str()) && packed.ends_with("$1\r\n1\r\n$3\r\na b\r\n"));
    }

    #[test]
    fn replies_lose_the_librarys_terms() {
        let reply = Value::Array(vec![Value::Int(-2), Value::Nil, Value::Okay]);
        let want = vec![Raw::Int(-2), Raw::Nil, Raw::Bytes(b"OK".to_vec())];
        assert_eq!(raw(reply).unwrap(), Raw::List(want));
        assert!(raw(Value::Array(vec![Value::Double(1.0)])).is_err());
    }
}
