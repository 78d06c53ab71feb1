//! Starting the command as a shell would.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// How much of a file tells text from a program of another machine.
const HEAD: u64 = 512;

/// Starts `words` as the leader of a new group.
pub(super) fn spawn(words: &[OsString], stdin: OwnedFd, stdout: OwnedFd) -> io::Result<Child> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| io::Error::from(Errno::INVAL))?;
    let mut command = Command::new(program);
    let command = command.args(arguments);
    let copies = (stdin.try_clone()?, stdout.try_clone()?);
    let started = start(command, stdin, stdout);
    let script = match &started {
        Err(error) if Errno::from_io_error(error) == Some(Errno::NOEXEC) => script(program),
        _ => None,
    };
    let Some(script) = script else { return started };
    let mut shell = Command::new("/bin/sh");
    start(
        shell.arg("--").arg(script).args(arguments),
        copies.0,
        copies.1,
    )
}

fn start(command: &mut Command, stdin: OwnedFd, stdout: OwnedFd) -> io::Result<Child> {
    command.stdin(stdin).stdout(stdout).process_group(0).spawn()
}

/// The file that the system declined to run, if it is text: a script without its first line.
fn script(program: &OsStr) -> Option<PathBuf> {
    let mut head = Vec::new();
    let path = find(program)?;
    File::open(&path)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .ok()?;
    (!head.contains(&0)).then_some(path)
}

/// Where the system found `program`.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
}
