//! What people and programs read.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use leasehold::{Holder, MutexGuard, Status};
use serde_json::{Value, json};

/// One line on stderr that says who speaks. A stderr that is gone is nobody's concern.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "leasehold: {}", escaped(line));
}

/// One line on stdout.
pub(crate) fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// A whole page on stdout.
pub(crate) fn print(page: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(page)?;
    out.flush()
}

/// `text` with the control characters written out, so that a name cannot steer a terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for each in text.chars() {
        if each.is_control() || is_invisible(each) {
            shown.extend(each.escape_default());
        } else {
            shown.push(each);
        }
    }
    shown
}

/// Marks that turn the direction of text around or take no room: they disguise a name.
fn is_invisible(each: char) -> bool {
    matches!(
        each,
        '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{2069}'
            | '\u{FEFF}'
    )
}

/// A time as people say it: to the second, below ten seconds to the tenth.
pub(crate) fn span(time: Duration) -> String {
    let step = match time.as_secs() {
        0..10 => 100,
        10.. => 1000,
    };
    humantime::format_duration(Duration::from_millis(millis(time) / step * step)).to_string()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Who holds, in words.
pub(crate) fn holder(status: &Status) -> String {
    let hold = escaped(status.hold.as_str());
    match origin(&status.holder) {
        Some(origin) => held(status, &format!("{hold} ({origin})")),
        None => held(status, &hold),
    }
}

/// Who holds, in few words: for a line that may be short.
pub(crate) fn holder_in_short(status: &Status) -> String {
    let origin = origin(&status.holder);
    held(
        status,
        &origin.unwrap_or_else(|| escaped(status.hold.as_str())),
    )
}

fn held(status: &Status, who: &str) -> String {
    let count = match status.count {
        1 => String::new(),
        count => format!(", entered {count} times"),
    };
    match status.remaining {
        Some(left) => format!("held by {who}{count}, {} left", span(left)),
        None => format!("held by {who}{count}, without an end"),
    }
}

/// Who that is, as far as anything is known.
fn origin(holder: &Holder) -> Option<String> {
    let Holder {
        host,
        pid,
        program,
        label,
        ..
    } = holder;
    let parts = [
        label.clone(),
        program.clone(),
        pid.map(|pid| format!("pid {pid}")),
        host.as_ref().map(|host| format!("on {host}")),
    ];
    let known: Vec<_> = parts.iter().flatten().map(|part| escaped(part)).collect();
    Some(known.join(", ")).filter(|known| !known.is_empty())
}

/// One lock, for `ls` and `status`.
pub(crate) fn row(status: &Status) -> String {
    format!("{}: {}", escaped(&status.name), holder(status))
}

/// A hold that was just taken, as JSON. Its token is a text: many readers round large numbers.
pub(crate) fn taken(name: &str, guard: &MutexGuard) -> Value {
    let mut value = json!({
        "name": name,
        "hold": guard.hold_id().as_str(),
        "remaining_ms": millis(guard.lease().remaining()),
    });
    if let Some(token) = guard.token() {
        value["token"] = token.to_string().into();
    }
    value
}

/// One lock as JSON.
pub(crate) fn json(status: &Status) -> Value {
    let remaining = status.remaining.map(millis);
    let Holder {
        host,
        pid,
        program,
        label,
        since,
        ..
    } = &status.holder;
    let since = since.and_then(|since| since.duration_since(SystemTime::UNIX_EPOCH).ok());
    json!({
        "name": status.name,
        "hold": status.hold.as_str(),
        "count": status.count,
        "remaining_ms": remaining,
        "host": host,
        "pid": pid,
        "program": program,
        "label": label,
        "since_ms": since.map(millis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_a_terminal() {
        assert_eq!(escaped("a\x1b[2J\r\nb\u{9b}"), "a\\u{1b}[2J\\r\\nb\\u{9b}");
        assert_eq!(escaped("\u{202e}x"), "\\u{202e}x");
        assert_eq!(escaped("orders:42 \u{e9}"), "orders:42 \u{e9}");
    }

    #[test]
    fn times_are_short_to_read() {
        assert_eq!(span(Duration::from_millis(29_876)), "29s");
        assert_eq!(span(Duration::from_millis(2_345)), "2s 300ms");
        assert_eq!(span(Duration::ZERO), "0s");
    }
}
