//! The directory: which one, and whether it can be trusted.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The environment variable that names another directory.
const VARIABLE: &str = "LEASEHOLD_DIR";
/// Where the machine keeps lock files; cleared at boot, as the holders are.
const PREFERRED: &str = "/run/lock";
const FALLBACK: &str = "/tmp";
/// The address of a Unix socket holds 108 bytes, and ours need 28 beyond the directory.
const LONGEST: usize = 80;

/// File systems on which an OS lock may not be seen by other machines, or by anybody.
const NETWORKED: [(u32, &str); 18] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFE53_4D42, "SMB2"),
    (0xFF53_4D42, "CIFS"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x6573_5546, "FUSE"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786F_4256, "a VirtualBox folder"),
    (0xBACB_ACBC, "a VMware folder"),
];

/// Finds, makes and checks the directory; makes what belongs in it.
pub(super) fn open(explicit: Option<&Path>) -> Result<PathBuf> {
    let dir = choose(explicit, std::env::var_os(VARIABLE).as_deref())?;
    for part in [holds(&dir), sockets(&dir)] {
        make(&part).map_err(|error| refused(&part, &format!("cannot be made: {error}")))?;
    }
    Ok(dir)
}

/// Where the hold files are.
pub(super) fn holds(dir: &Path) -> PathBuf {
    dir.join("holds")
}

/// Where the waiters' sockets are.
pub(super) fn sockets(dir: &Path) -> PathBuf {
    dir.join("w")
}

fn choose(explicit: Option<&Path>, variable: Option<&OsStr>) -> Result<PathBuf> {
    let named = explicit.or_else(|| variable.map(Path::new));
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        let dir = std::path::absolute(path)
            .map_err(|error| refused(path, &format!("cannot be resolved: {error}")))?;
        return have(&dir, make);
    }
    let own = format!("leasehold-{}", rustix::process::geteuid().as_raw());
    settle(
        &Path::new(PREFERRED).join(&own),
        &Path::new(FALLBACK).join(&own),
    )
}

/// A function of machine and user only, so that cron and a shell meet. So what may pass, as a full
/// disk, is no reason to go elsewhere: others would hold the same locks in the first directory.
fn settle(preferred: &Path, fallback: &Path) -> Result<PathBuf> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    match make(preferred) {
        Err(error)
            if matches!(
                error.kind(),
                NotFound | NotADirectory | PermissionDenied | ReadOnlyFilesystem
            ) =>
        {
            have(fallback, make)
        }
        made => have(preferred, |_| made),
    }
}

/// The directory, once it is there and has passed the checks.
fn have(dir: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<PathBuf> {
    if dir.as_os_str().as_bytes().len() > LONGEST {
        let why = format!("is longer than {LONGEST} bytes, too long for the sockets in it");
        return Err(refused(dir, &why));
    }
    make(dir).map_err(|error| refused(dir, &format!("cannot be made: {error}")))?;
    check(dir)?;
    Ok(dir.to_owned())
}

/// Makes a directory for this user alone, unless something of that name is there.
fn make(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // On a read-only file system that is the answer even when the directory is there.
        Err(_) if fs::symlink_metadata(dir).is_ok() => Ok(()),
        made => made,
    }
}

/// Whoever could write here could take, free and forge every lock.
fn check(dir: &Path) -> Result<()> {
    let seen = fs::symlink_metadata(dir)
        .map_err(|error| refused(dir, &format!("cannot be looked at: {error}")))?;
    if !seen.is_dir() {
        return Err(refused(dir, "is no directory, or a link to one"));
    }
    let user = rustix::process::geteuid().as_raw();
    if seen.uid() != user {
        let why = format!("belongs to user {}, not to user {user}", seen.uid());
        return Err(refused(dir, &why));
    }
    let mode = seen.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let why = format!("has mode {mode:o}; only its owner may have rights: chmod 700");
        return Err(refused(dir, &why));
    }
    let kind = rustix::fs::statfs(dir)
        .map_err(|error| refused(dir, &format!("cannot be looked at: {error}")))?
        .f_type;
    match networked(i128::from(kind)) {
        Some(name) => {
            let why = format!("is on {name}; the local store needs a file system of this machine");
            Err(refused(dir, &why))
        }
        None => Ok(()),
    }
}

/// The name of a networked file system, from its magic number, which some machines sign-extend.
fn networked(magic: i128) -> Option<&'static str> {
    let low = magic & i128::from(u32::MAX);
    let found = NETWORKED
        .iter()
        .find(|(known, _)| i128::from(*known) == low);
    found.map(|(_, name)| *name)
}

fn refused(dir: &Path, why: &str) -> Error {
    Error::config(format!("the lock directory {} {why}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn message(result: Result<PathBuf>) -> String {
        match result {
            Err(Error::Config(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_directory_is_made_for_its_owner_alone() {
        let base = tempfile::tempdir().unwrap();
        let dir = open(Some(&base.path().join("locks"))).unwrap();
        for part in [dir.clone(), holds(&dir), sockets(&dir)] {
            assert_eq!(fs::metadata(part).unwrap().mode() & 0o777, 0o700);
        }
        assert_eq!(open(Some(&dir)).unwrap(), dir);
    }

    #[test]
    fn a_directory_that_others_can_reach_is_refused() {
        let base = tempfile::tempdir().unwrap();
        for mode in [0o701, 0o710, 0o777, 0o1777] {
            fs::set_permissions(base.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert!(
                message(open(Some(base.path()))).contains("mode"),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn links_files_and_long_paths_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let (link, file) = (base.path().join("link"), base.path().join("file"));
        symlink(base.path(), &link).unwrap();
        fs::write(&file, "").unwrap();
        assert!(message(open(Some(&link))).contains("link"));
        assert!(message(open(Some(&file))).contains("no directory"));
        assert!(message(open(Some(&base.path().join("x".repeat(80))))).contains("longer"));
        assert!(message(open(Some(&base.path().join("a/b")))).contains("made"));
    }

    #[test]
    fn the_variable_is_heard_only_without_a_path() {
        let base = tempfile::tempdir().unwrap();
        let (one, two) = (base.path().join("one"), base.path().join("two"));
        let variable = Some(two.as_os_str());
        assert_eq!(choose(Some(&one), variable).unwrap(), one);
        assert_eq!(choose(None, variable).unwrap(), two);
    }

    #[test]
    fn only_a_place_that_cannot_be_had_is_left_for_another() {
        let base = tempfile::tempdir().unwrap();
        let (good, other) = (base.path().join("good"), base.path().join("other"));
        assert_eq!(settle(&good, &other).unwrap(), good);
        assert!(!other.exists());
        let missing = base.path().join("missing/own");
        assert_eq!(settle(&missing, &other).unwrap(), other);
        // As a full disk does, a loop says nothing about what others will find there.
        let circle = base.path().join("loop");
        symlink(&circle, &circle).unwrap();
        assert!(message(settle(&circle.join("own"), &other)).contains("made"));
    }

    #[test]
    fn networked_file_systems_are_known_by_their_magic() {
        assert_eq!(networked(0x6969), Some("NFS"));
        assert_eq!(networked(-11_317_950), Some("CIFS"));
        assert_eq!(networked(0x0102_1994), None, "tmpfs");
        assert_eq!(networked(0xEF53), None, "ext4");
    }
}
