//! What a script cannot get out of. Owns the tiers: which there are, what each is made of, and how
//! a script is started in one. Used by the shim alone. Must not know deadlines, output or records.
//!
//! - *Namespaces*: users, mounts, processes, network, IPC and host name of its own. The root is a
//!   small tmpfs with the host's programs read-only; a first process of ours stands over the script
//!   ([`init`]); what the kernel kills with that one is everything.
//! - *Landlock*: the host's namespaces, of which Landlock and the filter of system calls leave a
//!   script only its own directory. Processes are seen, and hunted for, as without a sandbox.
//!
//! Both have the filter, Landlock where the kernel has it, and limits. The script's text is read
//! before there is a sandbox, which hides where it stood.

mod cgroup;
pub(super) mod clone;
mod filter;
mod init;
mod landlock;
mod limits;
pub(super) mod network;
pub mod probe;
mod programs;
mod root;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(super) use self::cgroup::Group;
pub use self::cgroup::Version;
use self::filter::Filter;
pub(super) use self::init::{Boxed, Report};
use self::landlock::{Fence as Rules, Places, Reach};
pub use self::limits::Limits;
pub(super) use self::limits::{Passed, Watchdog};
use self::programs::{DEVICES, Place, Programs};
use self::root::Sources;
use super::spawn::Script;
use super::spool::SCRIPT;
use crate::core::limits::WATCH_PROCESSES_LATER;

/// How a script is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// By namespaces, and all that the other tier has.
    Namespaces,
    /// By Landlock and a filter of system calls.
    Landlock,
}

impl Tier {
    /// As people read it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "Landlock and a filter of system calls, without namespaces",
        }
    }
}

/// What a shim is told of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fence {
    /// How the script is held.
    pub(super) tier: Tier,
    /// What it may use.
    pub(super) limits: Limits,
}

/// Who a script is where it has namespaces: the first user that a system gives to a person.
const INSIDE: u32 = 1_000;
/// Who it is for the host where the shim is root: the kernel's own "nobody", who owns nothing.
const NOBODY: u32 = 65_534;

/// Makes namespaces for a script, which runs in them at [`Boxed::go`]; `networked` with a way out.
pub(super) fn start_boxed(
    script: Script<'_>,
    limits: Limits,
    networked: bool,
    group: Option<&Group>,
    pipes: [OwnedFd; 2],
) -> io::Result<Boxed> {
    init::start(script, limits, networked, group, pipes)
}

/// What a script's own process does before it becomes Python, in either tier. It was made before,
/// so that little can fail there.
#[derive(Debug)]
pub(super) struct Restraint {
    tier: Tier,
    limits: Limits,
    /// In the host's network it may connect to a port.
    networked: bool,
    rules: Rules,
    /// Processes of the same user that are there already, since the limit counts those too.
    others: u64,
    /// Whom to become first.
    user: Option<u32>,
    /// The group that it enters, where it is not in one already.
    group: Option<Group>,
    /// The filter, where it is the same for every process.
    filter: Option<Filter>,
}

impl Restraint {
    /// For a script in the host's namespaces, which may connect to this `port` at most. Its
    /// directory is given to whom it becomes.
    pub(super) fn without_namespaces(
        script: Script<'_>,
        limits: Limits,
        port: Option<u16>,
        group: Option<&Group>,
    ) -> io::Result<Self> {
        let user = nix::unistd::geteuid().is_root().then_some(NOBODY);
        if let Some(user) = user {
            Programs::open_to_all(script.python)?;
            for path in [script.work, &script.work.join(SCRIPT)] {
                std::os::unix::fs::chown(path, Some(user), Some(user))?;
            }
        }
        let programs = Programs::find(script.python, script.work)?;
        // What cannot be opened now is left out.
        let open = |path: &Path| Place::open(path).ok();
        let read: Vec<_> = programs.all().iter().filter_map(|path| open(path)).collect();
        let (work, devices) = (open(script.work), DEVICES.map(|path| open(Path::new(path))));
        let places = Places {
            read: read.iter().chain(&work).collect(),
            // What it wrote could not be bounded: a file that is removed and still open takes room
            // that nobody sees.
            work: None,
            devices: devices.iter().flatten().collect(),
        };
        let rules = Rules::new(&places, port.map_or(Reach::Nothing, Reach::Port))?;
        let others = limits::processes_of(user.unwrap_or(nix::unistd::geteuid().as_raw()));
        let networked = port.is_some();
        // A group counts its own alone, so others of the user that come later need take nothing.
        let others = others + group.map_or(0, |_| WATCH_PROCESSES_LATER);
        let group = group.cloned();
        let tier = Tier::Landlock;
        Ok(Self { tier, limits, networked, rules, others, user, group, filter: None })
    }

    /// For a script in namespaces, from inside of them.
    fn with_namespaces(limits: Limits, sources: &Sources, work: &Path) -> io::Result<Self> {
        // What is shown is still the same that was opened. What is a link there leads to it.
        let is_device = |place: &&Place| DEVICES.iter().any(|path| place.path == Path::new(path));
        let (devices, mut read): (Vec<_>, Vec<_>) = sources.places.iter().partition(is_device);
        // All that is in this one is shown, and who the script is stands nowhere else.
        let etc = Place::open(Path::new("/etc"))?;
        read.retain(|place| !place.path.starts_with(&etc.path));
        read.push(&etc);
        let work = Place::open(work)?;
        let rules = Rules::new(&Places { read, work: Some(&work), devices }, Reach::OwnNetwork)?;
        let tier = Tier::Namespaces;
        let (networked, user, group) = (false, None, None);
        let filter = Some(Filter::new(tier, networked, None)?);
        // The first process is one of them.
        Ok(Self { tier, limits, networked, rules, others: 1, user, group, filter })
    }

    /// How the script is named to Python. Who it becomes may not be able to go the whole way to the
    /// directory that it stands in already.
    pub(super) fn script(&self) -> PathBuf {
        match self.user {
            Some(_) => Path::new("/proc/self/cwd").join(SCRIPT),
            None => SCRIPT.into(),
        }
    }

    /// Enters its group and becomes somebody who owns nothing, where that is needed. Before the
    /// process asks to die with its parent, since the kernel forgets that with a change of user
    /// (prctl(2)).
    pub(super) fn change_user(&self) -> io::Result<()> {
        self.group.as_ref().map_or(Ok(()), |group| group.doors()?.go_in())?;
        let Some(user) = self.user else { return Ok(()) };
        let (uid, gid) = (nix::unistd::Uid::from_raw(user), nix::unistd::Gid::from_raw(user));
        nix::unistd::setgroups(&[])?;
        nix::unistd::setresgid(gid, gid, gid)?;
        nix::unistd::setresuid(uid, uid, uid)?;
        Ok(())
    }

    /// The last thing before the script: afterwards there is no way back.
    pub(super) fn apply(&self) -> io::Result<()> {
        self.limits.apply(self.others)?;
        let held = self.rules.apply()?;
        if self.tier == Tier::Landlock && !held.files {
            return Err(io::Error::other("this kernel has no Landlock"));
        }
        if self.networked && !held.ports {
            return Err(io::Error::other("this kernel's Landlock has no word on ports"));
        }
        if let Some(filter) = &self.filter {
            return filter.apply();
        }
        // Without Landlock's word on signals the filter has one: nobody but oneself.
        let alone = self.tier == Tier::Landlock && !held.signals;
        let alone = alone.then(|| nix::unistd::getpid().as_raw());
        Filter::new(self.tier, self.networked, alone)?.apply()
    }
}

/// A step of a sandbox that failed.
fn step<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error: io::Error = error.into();
        io::Error::new(error.kind(), format!("cannot {what}: {error}"))
    }
}
