//! What of the host's files a script may read: programs, libraries, and the interpreter wherever it
//! is installed. Owns the list. Must not know how the list is enforced.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// Where a system keeps its programs and libraries. Some of these are links into the first.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];
/// Single files and directories that programs need to start: where libraries are, what a program's
/// common name stands for, which time it is here. No names, no hosts, no certificates: there is no
/// network.
const SETTINGS: [&str; 3] = ["/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"];
/// Devices that give nothing away. Without `/dev/zero`: whoever maps it shared has memory that no
/// look sees.
pub(super) const DEVICES: [&str; 4] = ["/dev/null", "/dev/full", "/dev/random", "/dev/urandom"];
/// What an interpreter outside of the system's directories is made of, beside its `bin`.
const PARTS: [&str; 4] = ["bin", "lib", "lib64", "pyvenv.cfg"];

/// What may be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs(Vec<PathBuf>);

impl Programs {
    /// For this interpreter: the path by which it is called and the one that it really has may both
    /// stand outside of the system's directories, as in a virtual environment. The script's `work`
    /// may not lie in any of it: beside it lies all that the bot keeps.
    pub(super) fn find(python: &Path, work: &Path) -> io::Result<Self> {
        let real = fs::canonicalize(python).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", python.display()))
        })?;
        let mut all: Vec<PathBuf> = SYSTEM.iter().chain(&SETTINGS).map(PathBuf::from).collect();
        for path in [python, &real] {
            let bin = path.parent().filter(|bin| bin.is_absolute() && bin.ends_with("bin"));
            if SYSTEM.iter().any(|system| path.starts_with(system)) {
                continue;
            }
            let Some(prefix) = bin.and_then(Path::parent) else {
                // Else whatever lies beside it would be shown to scripts.
                let what = format!(
                    "{} is in no directory named bin; name a Python that is installed",
                    path.display()
                );
                return Err(io::Error::other(what));
            };
            for part in PARTS.map(|part| prefix.join(part)) {
                // Both may stand in the same directory: over what is shown already nothing is made.
                if !all.contains(&part) {
                    all.push(part);
                }
            }
        }
        let work = fs::canonicalize(work)?;
        let above = work.ancestors().map(|path| path.metadata().map(|is| same(&is)));
        let above = above.collect::<io::Result<BTreeSet<_>>>()?;
        let mut found = Vec::with_capacity(all.len());
        for path in all {
            let Ok(is) = path.metadata() else { continue };
            if above.contains(&same(&is)) {
                let (work, path) = (work.display(), path.display());
                let what = format!(
                    "{work} lies in {path}, which scripts may read; let `data_dir` (and \
                     `spool_dir` of [watch]) name a directory outside of it"
                );
                return Err(io::Error::other(what));
            }
            found.push(path);
        }
        Ok(Self(found))
    }

    /// Can nobody in particular run this interpreter? Root's script becomes such a one before it is
    /// Python, so a Python in a closed home would only fail with "permission denied".
    pub(super) fn open_to_all(python: &Path) -> io::Result<()> {
        for path in [python.to_owned(), fs::canonicalize(python)?] {
            for part in path.ancestors() {
                if part.metadata()?.mode() & 0o001 == 0 {
                    let what = format!(
                        "root's scripts run as nobody, who may not go through {} to {}; let \
                         `python` of [watch] name one that every user can run, such as \
                         /usr/bin/python3, or run dogwatch as the user to whom it belongs",
                        part.display(),
                        python.display()
                    );
                    return Err(io::Error::other(what));
                }
            }
        }
        Ok(())
    }

    /// All paths, the system's first.
    pub(super) fn all(&self) -> &[PathBuf] {
        &self.0
    }
}

/// What is the same has this the same, by whatever path it is looked at.
fn same(is: &Metadata) -> (u64, u64) {
    (is.dev(), is.ino())
}

/// A file or directory, held open without any right to it: it stays this one, whatever becomes of
/// its path.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) is_dir: bool,
}

impl Place {
    /// What is at this path now, behind all links.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::from(open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?);
        let is_dir = file.metadata()?.is_dir();
        Ok(Self { path: path.to_owned(), file, is_dir })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_systems_python_needs_nothing_beside_the_system() {
        let found = Programs::find(Path::new("/usr/bin/python3"), Path::new("/tmp")).unwrap();
        assert!(found.all().contains(&PathBuf::from("/usr")));
        let system =
            |path: &PathBuf| SYSTEM.iter().chain(&SETTINGS).any(|one| path.starts_with(one));
        assert!(found.all().iter().all(system), "{found:?}");
    }

    #[test]
    fn an_environment_brings_its_own_parts_and_nothing_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::create_dir(dir.path().join("secrets")).unwrap();
        fs::write(dir.path().join("pyvenv.cfg"), "").unwrap();
        let python = dir.path().join("bin/python");
        std::os::unix::fs::symlink("/usr/bin/python3", &python).unwrap();
        let found = Programs::find(&python, Path::new("/tmp")).unwrap();
        let own: Vec<_> = found.all().iter().filter(|path| path.starts_with(dir.path())).collect();
        assert_eq!(own, [&dir.path().join("bin"), &dir.path().join("pyvenv.cfg")]);
    }

    #[test]
    fn an_environment_of_copies_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::write(dir.path().join("pyvenv.cfg"), "").unwrap();
        let real = dir.path().join("bin/python3");
        fs::write(&real, "").unwrap();
        let linked = dir.path().join("bin/python");
        std::os::unix::fs::symlink("python3", &linked).unwrap();
        for python in [real, linked] {
            let found = Programs::find(&python, Path::new("/var/tmp")).unwrap();
            let own = |path: &&PathBuf| path.starts_with(dir.path());
            assert_eq!(found.all().iter().filter(own).count(), 2, "{found:?}");
        }
    }

    #[test]
    fn a_python_in_a_closed_directory_is_named_with_that() {
        let dir = tempfile::tempdir().unwrap();
        let python = dir.path().join("python");
        std::os::unix::fs::symlink("/usr/bin/python3", &python).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let refused = Programs::open_to_all(&python).unwrap_err().to_string();
        assert!(refused.contains(&format!("through {} to", dir.path().display())), "{refused}");
        Programs::open_to_all(Path::new("/usr/bin/python3")).unwrap();
    }

    #[test]
    fn a_python_that_lies_anywhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let python = dir.path().join("python");
        std::os::unix::fs::symlink("/usr/bin/python3", &python).unwrap();
        let refused = Programs::find(&python, Path::new("/tmp")).unwrap_err();
        assert!(refused.to_string().contains("bin"));
    }

    #[test]
    fn what_scripts_may_read_holds_nothing_of_the_bots() {
        let python = Path::new("/usr/bin/python3");
        let refused = Programs::find(python, Path::new("/usr/lib")).unwrap_err().to_string();
        assert!(refused.contains("/usr") && refused.contains("data_dir"), "{refused}");
        // By whatever path, and from however far below.
        let dir = tempfile::tempdir().unwrap();
        for part in ["bin", "lib/far/below"] {
            fs::create_dir_all(dir.path().join(part)).unwrap();
        }
        fs::write(dir.path().join("bin/python"), "").unwrap();
        let other = dir.path().join("other");
        std::os::unix::fs::symlink(dir.path().join("lib/far"), &other).unwrap();
        let python = dir.path().join("bin/python");
        let refused = Programs::find(&python, &other.join("below")).unwrap_err().to_string();
        assert!(refused.contains("/lib/far/below lies in"), "{refused}");
        Programs::find(&python, dir.path()).unwrap();
    }
}
