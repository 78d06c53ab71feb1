//! What can be typed. Nothing is decided here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Distributed locks on Redis, Valkey or this machine: flock(1) across hosts.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = crate::exit::TABLE)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The store: redis://[user:password@]host[:port][/database], rediss: for the same under TLS,
    /// unix:///socket[?db=1&user=name&pass=word], or local:[/directory].
    ///
    /// Without it, and without LEASEHOLD_URL, locks are those of this user on this machine, in
    /// LEASEHOLD_DIR or a directory of the user. A store that is named and cannot be reached is an
    /// error, never replaced by another. A password on a command line shows in ps: prefer
    /// --url-file or LEASEHOLD_URL.
    #[arg(long, global = true)]
    pub(crate) url: Option<String>,

    /// A file whose only line is the URL, to keep a password out of ps and the environment. It
    /// should be readable by its owner only.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,

    /// Refuse to work on this machine only: without the URL of a server, exit with 64.
    #[arg(long, global = true)]
    pub(crate) require_distributed: bool,

    /// What stands in front of the name of every lock, such as app: for all locks of an
    /// application. Names are shown without it.
    #[arg(long, global = true, value_name = "TEXT", env = "LEASEHOLD_PREFIX")]
    pub(crate) prefix: Option<String>,

    /// Trust rediss: servers by these authorities, in a PEM file, instead of those of the system.
    #[arg(long, global = true, value_name = "FILE", env = "LEASEHOLD_CACERT")]
    pub(crate) cacert: Option<PathBuf>,

    /// The certificate to show to a rediss: server that asks for one, in a PEM file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEASEHOLD_CERT",
        requires = "key"
    )]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of the certificate, in a PEM file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEASEHOLD_KEY",
        requires = "cert"
    )]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take a lock, run a command, give the lock back.
    #[command(after_long_help = RUN_NOTES)]
    Run(Run),

    /// Take a lock for a time and print the identity of the hold, for renew and release.
    ///
    /// Nothing watches over the hold: it ends with its lease, whatever the script does then. Where
    /// one command can do the work, use run.
    Acquire(Acquire),

    /// Let a hold that acquire took last longer. Exits with 76 when it is lost.
    Renew(Renew),

    /// Give back a hold that acquire took. Exits with 76 when it was lost before.
    Release(Release),

    /// Show who holds a lock. Exits with 0 when it is held, with 1 when it is free.
    Status(Status),

    /// List the locks that are held, in the order of their names.
    Ls(Ls),

    /// Return when a lock is free, without taking it.
    ///
    /// It looks at the lock again and again, at most 4 times a second. Another may have it by the
    /// time that this returns: to do something under the lock, use run.
    Wait(Wait),

    /// Break a lock, whoever holds it.
    Unlock(Unlock),

    /// Print a script that completes the words of this command in a shell.
    Completions(Completions),

    /// Print the manual page, or that of a subcommand: leasehold man | man -l -
    Man(Man),
}

const RUN_NOTES: &str = "\
The command gets LEASEHOLD_NAME and LEASEHOLD_HOLD, the identity of the hold, LEASEHOLD_TOKEN if
the hold is fenced, and LEASEHOLD_URL without its password if there is a URL. Signals are passed on
to it. In a terminal it has the foreground; if standard output is a pipe, only when it asks for it,
since a pager at the other end needs the terminal, too.

When the lease would end within the grace, the command and all its descendants get TERM, and KILL
before it ends; also when leasehold itself hangs or is killed. Descendants that live on after the
command has ended by itself are left alone. On this machine they keep the lock until they end, as
with flock(1), and leasehold is silent about it; on a server they do not.

Times are written as 500ms, 10s, 5m, 1h 30m. Exit codes: see leasehold --help.";

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The lock.
    pub(crate) name: String,

    /// The command and its arguments, after a double hyphen.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) patience: Patience,

    /// Take the lock for this time and do not renew it. The command is ended before it is over.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) lease: Option<Duration>,

    /// The time that the lock outlives a crash; renewed every third of it. Default: 30s.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "lease")]
    pub(crate) ttl: Option<Duration>,

    /// What to take.
    #[arg(long, value_enum, default_value_t = Kind::Mutex)]
    pub(crate) kind: Kind,

    /// Keep the lock until this long after it was taken, even if the command ends sooner: for
    /// cron on hosts whose clocks differ. A signal cuts it short. Default: 0s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) min_hold: Option<Duration>,

    /// How long the command has to end after TERM, before KILL. Less than half of the lease.
    /// Default: a third of the lease, at most 5s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,

    #[command(flatten)]
    pub(crate) label: Label,

    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Patience {
    /// How long to wait for the lock. Default: for ever; then a server that does not answer for
    /// 30s ends the wait.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: exit at once if somebody holds the lock.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// The exit code when the lock was not acquired. Default: 75.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
}

#[derive(Debug, Args)]
pub(crate) struct Label {
    /// What this is for, in a few words: shown to others by status, ls and waiting runs.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// In which format the lock is kept.
#[derive(Debug, Args)]
pub(crate) struct Format {
    /// The lock is in the plain format, SET NAME TOKEN NX PX: that of redsync, node-redlock,
    /// redis-py and many others. All who use one name must use one format; ls does not list it.
    #[arg(long)]
    pub(crate) plain: bool,
}

/// What there is to choose about a lock that is taken.
#[derive(Debug, Args)]
pub(crate) struct Form {
    #[command(flatten)]
    pub(crate) format: Format,

    /// Get a fencing token: a number higher than that of every fenced hold of the lock before.
    /// run gives it to the command as LEASEHOLD_TOKEN, acquire prints it as a second line.
    #[arg(long)]
    pub(crate) fenced: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Acquire {
    /// The lock.
    pub(crate) name: String,

    /// How long the lock is taken for. It is not renewed, except by `renew`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) lease: Duration,

    #[command(flatten)]
    pub(crate) patience: Patience,

    /// One line of JSON: name, hold, remaining_ms, and if fenced: token, as a text.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) label: Label,

    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// The lock.
    pub(crate) name: String,

    /// The hold, as acquire printed it.
    #[arg(long, value_name = "ID")]
    pub(crate) hold: String,

    /// How long the lock is to be held from now on; what is left of it is never shortened.
    /// Default: 30s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) lease: Option<Duration>,

    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The lock.
    pub(crate) name: String,

    /// The hold, as acquire printed it.
    #[arg(long, value_name = "ID")]
    pub(crate) hold: String,

    #[command(flatten)]
    pub(crate) format: Format,
}

/// The kinds of lock that `run` can take.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// One hold at a time.
    Mutex,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The lock.
    pub(crate) name: String,

    /// One line of JSON: name, held, and if held: hold, count, remaining_ms, host, pid, program,
    /// label, since_ms; null is what is not known.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The lock.
    pub(crate) name: String,

    /// How long to wait. Default: for ever; then a server that does not answer for 30s ends it.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,

    /// The exit code when the lock is still held at the end of the wait. Default: 75.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,

    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Which names: * stands for any text, ? for one character.
    #[arg(default_value = "*")]
    pub(crate) pattern: String,

    /// A JSON array of objects as of status.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Unlock {
    /// The lock.
    pub(crate) name: String,

    /// Yes, break it: its holder learns of it at its next renewal, so for a while two may work.
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The subcommand.
    pub(crate) subcommand: Option<String>,
}

/// Said by `run` to itself; no part of the command's face.
#[derive(Debug, Parser)]
pub(crate) struct Supervise {
    /// When the lease ends: milliseconds on the clock since boot.
    #[arg(long)]
    pub(crate) deadline: u64,

    /// Milliseconds between TERM and KILL.
    #[arg(long)]
    pub(crate) grace: u64,

    /// The process group of `run`, if there is a terminal.
    #[arg(long)]
    pub(crate) terminal_of: Option<i32>,

    /// Whether the command gets the terminal's foreground at once.
    #[arg(long)]
    pub(crate) foreground: bool,

    /// Whether the command keeps the hold alive by a file.
    #[arg(long)]
    pub(crate) hold_file: bool,

    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 10s or 1m 30s"))
}
