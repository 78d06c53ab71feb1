//! Where the locks are, and where that is written.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cli::Global;
use crate::config::Wrong;
use crate::output;

/// Longer than any URL; a file may have no end.
const LONGEST: u64 = 65_536;
/// The permission to read for users other than the owner and the group.
const OTHERS: u32 = 0o004;

/// Where the locks are, and how to get there.
#[derive(Debug)]
pub(crate) struct Place {
    /// None if nobody said: this machine.
    pub(crate) url: Option<String>,
    pub(crate) prefix: String,
    pub(crate) cacert: Option<PathBuf>,
    /// A certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl Place {
    /// What was said, on the command line or else by `variable` of the environment.
    pub(crate) fn new(global: Global, variable: Option<OsString>) -> Result<Self, Wrong> {
        let said = match (global.url, global.url_file) {
            (Some(url), _) => Some(url),
            (None, Some(file)) => Some(read(&file)?),
            (None, None) => variable
                .map(|url| url.into_string().map_err(|_| "LEASEHOLD_URL is no text"))
                .transpose()?,
        };
        let distributed = said
            .as_deref()
            .is_some_and(|url| !url.starts_with("local:"));
        match &said {
            // A variable that a template left empty must not turn into "this machine only".
            Some(url) if url.is_empty() => Err("the URL is empty".into()),
            _ if global.require_distributed && !distributed => Err(
                "--require-distributed needs the URL of a server (--url, --url-file or \
                 LEASEHOLD_URL)"
                    .into(),
            ),
            _ => Ok(Self {
                url: said,
                prefix: global.prefix.unwrap_or_default(),
                cacert: global.cacert,
                identity: global.cert.zip(global.key),
            }),
        }
    }

    /// By what a `leasehold` that CMD starts finds the same locks, or fails.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![("LEASEHOLD_PREFIX", OsString::from(&self.prefix))];
        if let Some(url) = &self.url {
            environment.push(("LEASEHOLD_URL", without_password(url).into()));
        }
        let files = [
            ("LEASEHOLD_CACERT", self.cacert.as_ref()),
            (
                "LEASEHOLD_CERT",
                self.identity.as_ref().map(|(cert, _)| cert),
            ),
            ("LEASEHOLD_KEY", self.identity.as_ref().map(|(_, key)| key)),
        ];
        let files = files
            .into_iter()
            .filter_map(|(name, file)| Some((name, file?.into())));
        environment.extend(files);
        environment
    }
}

/// The URL in a file. What it says is shown in no message.
fn read(path: &Path) -> Result<String, Wrong> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let unreadable = |error: io::Error| wrong(error.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    let mut content = String::new();
    file.take(LONGEST)
        .read_to_string(&mut content)
        .map_err(unreadable)?;
    let url = content.strip_suffix('\n').unwrap_or(&content);
    let url = url.strip_suffix('\r').unwrap_or(url);
    if url.contains(['\n', '\r']) {
        return Err(wrong("the URL must be its only line".into()));
    }
    if mode & OTHERS != 0 && without_password(url) != url {
        output::complain(&wrong(
            "it has a password, and every user can read it".into(),
        ));
    }
    Ok(url.to_owned())
}

/// `url` without what opens doors: what CMD may see of it. Empty if that cannot be told.
///
/// A `leasehold` that CMD starts then fails to log in, or calls the URL empty, instead of falling
/// back to this machine.
fn without_password(url: &str) -> String {
    if url.starts_with("local:") {
        return url.to_owned();
    }
    let url = url.split('#').next().unwrap_or_default();
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let harmless = |pair: &&str| {
        let key = pair.split('=').next().unwrap_or_default();
        ["db", "user", "protocol"].contains(&key)
    };
    let query: Vec<&str> = query.split('&').filter(harmless).collect();
    let url = without_login(url);
    if url.is_empty() || query.is_empty() {
        return url;
    }
    format!("{url}?{}", query.join("&"))
}

fn without_login(url: &str) -> String {
    let Some((before, host)) = url.rsplit_once('@') else {
        return url.to_owned();
    };
    let Some((scheme, login)) = before.split_once("://") else {
        return String::new();
    };
    match login.split_once(':').map_or(login, |(user, _)| user) {
        "" => format!("{scheme}://{host}"),
        user => format!("{scheme}://{user}@{host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(
        url: Option<&str>,
        variable: Option<&str>,
        require_distributed: bool,
    ) -> Result<Option<String>, Wrong> {
        let global = Global {
            url: url.map(str::to_owned),
            url_file: None,
            require_distributed,
            prefix: None,
            cacert: None,
            cert: None,
            key: None,
        };
        Place::new(global, variable.map(OsString::from)).map(|place| place.url)
    }

    #[test]
    fn what_is_said_on_the_line_beats_the_environment() {
        let at = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(place(None, None, false), Ok(None));
        assert_eq!(place(None, Some("redis://e"), false), at("redis://e"));
        let both = place(Some("redis://l"), Some("redis://e"), true);
        assert_eq!(both, at("redis://l"));
    }

    #[test]
    fn an_empty_url_is_not_this_machine() {
        assert!(place(Some(""), None, false).is_err());
        assert!(place(None, Some(""), false).is_err());
    }

    #[test]
    fn this_machine_is_not_distributed() {
        assert!(place(None, None, true).is_err());
        assert!(place(Some("local:"), None, true).is_err());
    }

    #[test]
    fn the_command_never_sees_the_password() {
        for (url, seen) in [
            ("redis://h:1/0", "redis://h:1/0"),
            ("redis://:secret@h/0", "redis://h/0"),
            ("redis://user:secret@h", "redis://user@h"),
            ("redis://user:se@cr/et@h", "redis://user@h"),
            ("redis://h?password=secret", "redis://h"),
            (
                "rediss://u:secret@h/3?protocol=resp3",
                "rediss://u@h/3?protocol=resp3",
            ),
            (
                "unix:///run/s?db=3&user=u&pass=secret",
                "unix:///run/s?db=3&user=u",
            ),
            ("unix:///run/s?pass=secret", "unix:///run/s"),
            ("local:/a?b@c", "local:/a?b@c"),
            ("secret@h", ""),
        ] {
            assert_eq!(without_password(url), seen, "{url}");
        }
    }
}
