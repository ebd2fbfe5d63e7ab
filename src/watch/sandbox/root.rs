//! The files of a script in namespaces: a small read-only root with the host's programs, and one
//! directory of its own, bounded in bytes and files. Owns the mounts. Must not know processes.
//!
//! There is no `/proc`: containers often refuse its mount, and scripts do not need it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::statvfs;
use nix::unistd::pivot_root;

use super::programs::{DEVICES, Place, Programs};
use super::{INSIDE, step};

/// Where a script works: its home, and where it may write. `/tmp` is a link to it.
pub(super) const WORK: &str = "/work";
/// Where the new root is put together. It is there on every system, hidden only for us, and neither
/// itself a source nor above one that is a directory: such a source would bring the stage along.
const STAGE: &str = "/dev";
/// Room for links, empty files and directories.
const ROOT_OPTIONS: &str = "size=256k,nr_inodes=256,mode=755";
/// Where the old root hangs for a moment.
const OLD: &str = ".old";
const NONE: Option<&str> = None;

/// What will be shown of the host.
pub(super) struct Sources {
    /// Opened before the user is changed: afterwards the way may be closed. Also a mount above it
    /// cannot hide it.
    pub(super) places: Vec<Place>,
    /// Where `/lib` is a link into `/usr` it is one here as well: from where, to what.
    links: Vec<(PathBuf, PathBuf)>,
}

/// Opens what will be shown. In the new mount namespace: a path of another cannot be mounted here.
pub(super) fn open(programs: &Programs) -> io::Result<Sources> {
    let mut sources = Sources { places: vec![], links: vec![] };
    for path in programs.all().iter().map(PathBuf::as_path).chain(DEVICES.map(Path::new)) {
        if path.parent() == Some(Path::new("/"))
            && let Ok(target) = fs::read_link(path)
        {
            sources.links.push((path.to_owned(), target));
            continue;
        }
        if [WORK, "/tmp"].iter().any(|own| path.starts_with(own)) {
            let what = format!(
                "{} lies where a script has a directory of its own; let `python` of [watch] name \
                 one that is neither below {WORK} nor below /tmp",
                path.display()
            );
            return Err(io::Error::other(what));
        }
        match Place::open(path) {
            Ok(place) => sources.places.push(place),
            Err(error) if path.exists() => return Err(error),
            Err(_not_there) => {}
        }
    }
    Ok(sources)
}

/// Makes the root, goes there, and lets go of the old one.
pub(super) fn enter(sources: &Sources, bytes: u64, files: u64) -> io::Result<()> {
    // What is mounted here from now on is seen by nobody else.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .map_err(step("leave the host's mounts"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), STAGE, Some("tmpfs"), flags, Some(ROOT_OPTIONS))
        .map_err(step("mount a root"))?;
    std::env::set_current_dir(STAGE)?;
    let etc = Path::new("etc");
    fs::create_dir(etc)?;
    let mut made = BTreeSet::from([Path::new(""), etc]);
    for (path, target) in &sources.links {
        symlink(target, below(path)?)?;
    }
    for place in &sources.places {
        let what = format!("show {}", place.path.display());
        show(place, &mut made).map_err(step(&what))?;
    }
    let me = format!("watcher:x:{INSIDE}:{INSIDE}::{WORK}:/usr/sbin/nologin\n");
    fs::write(etc.join("passwd"), me)?;
    fs::write(etc.join("group"), format!("watcher:x:{INSIDE}:\n"))?;
    fs::write(etc.join("hosts"), "127.0.0.1 localhost\n")?;
    work(bytes, files).map_err(step("mount its directory"))?;
    // Semaphores between processes are files there (sem_overview(7)): so they count as its own.
    symlink(WORK, "dev/shm").map_err(step("give it a place for semaphores"))?;
    fs::create_dir(OLD)?;
    pivot_root(".", OLD).map_err(step("change the root"))?;
    std::env::set_current_dir("/")?;
    umount2(&*format!("/{OLD}"), MntFlags::MNT_DETACH).map_err(step("leave the old root"))?;
    fs::remove_dir(format!("/{OLD}"))?;
    let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(NONE, "/", NONE, flags, NONE).map_err(step("make the root read-only"))
}

fn work(bytes: u64, files: u64) -> io::Result<()> {
    let place = WORK.trim_start_matches('/');
    fs::create_dir(place)?;
    symlink(place, "tmp")?;
    let options = format!("size={bytes},nr_inodes={files},mode=700,uid={INSIDE},gid={INSIDE}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), place, Some("tmpfs"), flags, Some(options.as_str()))?)
}

/// Makes one path of the host appear at the same place, read-only. Which directories are `made` is
/// kept.
fn show<'a>(source: &'a Place, made: &mut BTreeSet<&'a Path>) -> io::Result<()> {
    let place = below(&source.path)?;
    if let Some(above) = place.parent()
        && made.insert(above)
    {
        fs::create_dir_all(above)?;
    }
    if source.is_dir {
        fs::create_dir_all(place)?;
    } else {
        File::create(place)?;
    }
    let from = PathBuf::from(format!("/proc/self/fd/{}", source.file.as_raw_fd()));
    // With what is mounted below it: a part of what it covers must not be uncovered here.
    mount(Some(&from), place, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    if source.path.starts_with("/dev") {
        return Ok(());
    }
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(NONE, place, NONE, flags | MsFlags::MS_NOSUID | MsFlags::MS_NODEV, NONE)?;
    Ok(())
}

/// Where a path of the host stands in the root that is being made.
fn below(path: &Path) -> io::Result<&Path> {
    path.strip_prefix("/").map_err(io::Error::other)
}

/// Is the script's directory full, in bytes or in files?
pub(super) fn is_full() -> bool {
    // Less than a page left is nothing left.
    statvfs(WORK).is_ok_and(|now| now.blocks_available() == 0 || now.files_free() == 0)
}
