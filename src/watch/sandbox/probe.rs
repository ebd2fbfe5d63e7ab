//! Which tier this machine has. It is not asked for versions or settings, which lie: Python is run
//! in the full sandbox, from the strongest tier down. Owns the question and its answer. The bot
//! asks; a small process of its own, like a shim, tries.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::unistd::{alarm, pipe2};
use rustix::process::{WaitOptions, waitpid};
use serde::{Deserialize, Serialize};

use super::init::Report;
use super::{Fence, Group, Limits, Restraint, Tier, Version, cgroup, network, start_boxed, step};
use crate::core::execution::Exit;
use crate::core::limits::WATCH_PROBE_MS_MAX;
use crate::watch::spawn::{self, Script};
use crate::watch::spool::SCRIPT;

/// What is run to try the way out where there are no namespaces: one port can be reached, another
/// one cannot.
const SCRIPT_OF_NETWORK: &str = "import socket
socket.create_connection(('127.0.0.1', {port}), 5)
try:
    socket.create_connection(('127.0.0.1', {other}), 5)
    print('outside')
except PermissionError:
    print('inside')
";
/// What is run. It has to come through whole.
const SCRIPT_OF_PROBE: &str = "print('inside')";
const SAYS: &str = "inside\n";
/// Says 1 where programs without a profile may not make namespaces: Ubuntu since 23.10.
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
/// A directory that is in memory.
const MEMORY: &str = "/dev/shm";
/// What is read of what it prints.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// What a machine has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The strongest tier that works.
    pub tier: Option<Tier>,
    /// Why there are no namespaces, where there are none.
    pub no_namespaces: Option<String>,
    /// Why Landlock and the filter alone do not do, where they do not.
    pub no_landlock: Option<String>,
    /// `AppArmor` keeps programs without a profile from making namespaces.
    #[serde(default)]
    pub apparmor: bool,
    /// The group below which those of scripts are made, each of which holds all processes of one
    /// together, beside the looks of its shim.
    #[serde(default)]
    pub(in crate::watch) groups: Option<Group>,
    /// Why there is no such thing, where there is none.
    #[serde(default)]
    pub no_group: Option<String>,
    /// Why scripts can have no network in that tier, where they cannot.
    #[serde(default)]
    pub no_network: Option<String>,
}

impl Finding {
    /// Why there is no tier at all, and what to do.
    pub fn refusal(&self) -> String {
        let none = String::new();
        format!(
            "scripts cannot be sandboxed on this machine: {}; {}; `dogwatch doctor` says what \
             would help, and `sandbox = \"off\"` in [watch] runs them without",
            self.no_namespaces.as_ref().unwrap_or(&none),
            self.no_landlock.as_ref().unwrap_or(&none),
        )
    }

    /// Why a script cannot have a network here, and what to do.
    pub fn network_refusal(&self) -> Option<String> {
        let why = self.no_network.as_ref()?;
        Some(format!(
            "scripts can have no network on this machine: without namespaces Linux 6.7 or newer is \
             needed, whose Landlock keeps connections to one port ({why}); `dogwatch doctor` says \
             how to get namespaces"
        ))
    }

    /// Which control groups hold all processes of a script together, if any do.
    pub fn group(&self) -> Option<Version> {
        self.groups.as_ref().map(Group::version)
    }

    /// What holds all processes of a script together, and why it is not more.
    pub fn bounded(&self) -> String {
        match (self.group(), &self.no_group) {
            (Some(version), _) => {
                format!("{} bound the memory of all its processes together", version.words())
            }
            (None, why) => format!(
                "memory is only looked at, once a second, since there is no control group: {}",
                why.as_deref().unwrap_or("it was not tried")
            ),
        }
    }

    /// How the kernel could be had to hold all processes of a script together.
    pub fn cure_of_groups(&self) -> Option<&'static str> {
        self.group().is_none().then_some(
            "nothing has to be done; with systemd Delegate=yes and DelegateSubgroup=bot, in a \
             container its own writable control groups, let the kernel see to it at once",
        )
    }

    /// How a better tier is had, as far as the reason tells.
    pub fn cure(&self) -> Option<&'static str> {
        match self.tier {
            Some(Tier::Namespaces) => None,
            Some(Tier::Landlock) | None if self.apparmor => Some(
                "let AppArmor allow this program to make namespaces: install \
                 contrib/apparmor/dogwatch as /etc/apparmor.d/dogwatch, with the path of this \
                 program in it, and run apparmor_parser -r /etc/apparmor.d/dogwatch",
            ),
            Some(Tier::Landlock) | None => Some(
                "let this user make namespaces: in Docker --security-opt seccomp=unconfined, in \
                 Kubernetes seccompProfile Unconfined, on Ubuntu the AppArmor profile \
                 contrib/apparmor/dogwatch, elsewhere sysctl user.max_user_namespaces above 0",
            ),
        }
    }
}

/// Asks a process of its own, which makes a directory in `place` for a moment. Blocking, for tens
/// of milliseconds.
pub fn ask(program: &Path, python: &Path, limits: Limits, place: &Path) -> Finding {
    let answer = spawn::probe(program, python, limits, place).and_then(|said| {
        serde_json::from_slice(&said.stdout).map_err(|_nothing| {
            let complaint = String::from_utf8_lossy(&said.stderr);
            let last = complaint.lines().last().unwrap_or("it says nothing").to_owned();
            io::Error::other(format!("the probe ended with {}: {last}", said.status))
        })
    });
    answer.unwrap_or_else(|error| Finding {
        tier: None,
        no_namespaces: Some(format!("the sandbox cannot be tried: {error}")),
        no_landlock: Some("so nothing is known of Landlock".to_owned()),
        no_group: Some("that cannot be tried either".to_owned()),
        ..Finding::default()
    })
}

/// The process that tries: `dogwatch probe PYTHON LIMITS PLACE`. Answers on stdout.
pub fn run(python: &Path, limits: &str, place: &Path) -> u8 {
    // Whatever hangs ends with this process.
    alarm::set(u32::try_from(WATCH_PROBE_MS_MAX / 1_000).unwrap_or(1));
    let limits = serde_json::from_str(limits).unwrap_or_default();
    let finding = look(python, limits, place);
    let written = serde_json::to_writer(io::stdout(), &finding);
    u8::from(written.is_err())
}

fn look(python: &Path, limits: Limits, place: &Path) -> Finding {
    let mut finding = Finding::default();
    match cgroup::tried(&limits) {
        Ok(groups) => finding.groups = Some(groups),
        Err(error) => finding.no_group = Some(error.to_string()),
    }
    for tier in [Tier::Namespaces, Tier::Landlock] {
        let fence = Fence { tier, limits };
        let mut ran = tried(fence, finding.groups.as_ref(), python, place);
        if let (Err(error), Some(_)) = (&ran, &finding.groups) {
            // It may be the group that does not work with the rest.
            let without = tried(fence, None, python, place);
            if without.is_ok() {
                finding.no_group = Some(error.to_string());
                finding.groups = None;
                ran = without;
            }
        }
        let why = match tier {
            Tier::Namespaces => &mut finding.no_namespaces,
            Tier::Landlock => &mut finding.no_landlock,
        };
        match ran {
            Ok(()) => {
                finding.tier = Some(tier);
                break;
            }
            Err(error) => *why = Some(format!("{}: {error}", tier.words())),
        }
    }
    if let Some(tier @ Tier::Landlock) = finding.tier {
        let groups = finding.groups.as_ref();
        let tried = tried_network(Fence { tier, limits }, groups, python, place);
        finding.no_network = tried.err().map(|error| error.to_string());
    }
    let restricts = fs::read_to_string(APPARMOR).is_ok_and(|word| word.trim() == "1");
    finding.apparmor = finding.no_namespaces.is_some() && restricts;
    finding
}

/// A directory with a script, which goes with its owner.
struct Place(PathBuf);

impl Place {
    /// In this place. What a machine can do does not depend on the room that is left there, and the
    /// bot would believe it until it is started again: so where there is none it is elsewhere.
    fn with(script: &str, place: &Path) -> io::Result<Self> {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        let made = Self::made(script, place);
        match made {
            Err(full) if matches!(full.kind(), StorageFull | QuotaExceeded) => {
                let others = [std::env::temp_dir(), MEMORY.into()];
                others.iter().find_map(|other| Self::made(script, other).ok()).ok_or(full)
            }
            made => made,
        }
    }

    fn made(script: &str, place: &Path) -> io::Result<Self> {
        let path = place.join(format!("probe-{}", std::process::id()));
        // Left by one that was killed and had the same number.
        let _none = fs::remove_dir_all(&path);
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(step("make a directory to try in"))?;
        let place = Self(path);
        fs::write(place.0.join(SCRIPT), script).map_err(step("write a script to try"))?;
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _left_to_the_system = fs::remove_dir_all(&self.0);
    }
}

fn tried(fence: Fence, groups: Option<&Group>, python: &Path, place: &Path) -> io::Result<()> {
    ran((fence, groups), python, place, (SCRIPT_OF_PROBE, None))
}

fn tried_network(
    fence: Fence,
    groups: Option<&Group>,
    python: &Path,
    place: &Path,
) -> io::Result<()> {
    let [way, other] = [network::listen_at(0)?, network::listen_at(0)?];
    let [port, other] = [way.local_addr()?.port(), other.local_addr()?.port()];
    let script = SCRIPT_OF_NETWORK
        .replace("{port}", &port.to_string())
        .replace("{other}", &other.to_string());
    ran((fence, groups), python, place, (&script, Some(port)))
}

/// Runs this text, which may connect to this port, and which has to say that it is inside.
fn ran(
    (fence, groups): (Fence, Option<&Group>),
    python: &Path,
    place: &Path,
    (script, port): (&str, Option<u16>),
) -> io::Result<()> {
    let place = Place::with(script, place)?;
    let group = groups.map(Group::of_probe);
    group.as_ref().map_or(Ok(()), |group| group.make(&fence.limits))?;
    let script = Script { python, env: &[], work: &place.0 };
    let (said, out) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let (complained, err) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let exit = match fence.tier {
        Tier::Namespaces => in_namespaces(script, fence.limits, group.as_ref(), [out, err]),
        Tier::Landlock => in_place(script, (fence.limits, port), group.as_ref(), [out, err]),
    };
    if let Some(group) = group {
        group.end();
    }
    let exit = exit?;
    let (said, complained) = (text(said), text(complained));
    if exit == Some(Exit::Code(0)) && said == SAYS {
        return Ok(());
    }
    let last = complained.lines().last().unwrap_or("it says nothing").to_owned();
    Err(io::Error::other(format!("Python does not run in it: {last}")))
}

type Tried = io::Result<Option<Exit>>;

fn in_namespaces(
    script: Script<'_>,
    limits: Limits,
    group: Option<&Group>,
    pipes: [OwnedFd; 2],
) -> Tried {
    let mut boxed = start_boxed(script, limits, false, group, pipes)?;
    boxed.go();
    waitpid(Some(boxed.pid), WaitOptions::empty())?;
    match boxed.report() {
        Some(Report::Ended { exit, .. }) => Ok(exit),
        Some(Report::Failed { what }) => Err(io::Error::other(what)),
        None => Err(io::Error::other("its first process was killed")),
    }
}

fn in_place(
    script: Script<'_>,
    (limits, port): (Limits, Option<u16>),
    group: Option<&Group>,
    pipes: [OwnedFd; 2],
) -> Tried {
    let restraint = Restraint::without_namespaces(script, limits, port, group)?;
    let status = spawn::script(script, Some(restraint), pipes).status()?;
    Ok(status.code().map(Exit::Code))
}

/// What came out of a pipe whose writers are gone.
fn text(pipe: OwnedFd) -> String {
    let mut text = String::new();
    let _what_is_there = File::from(pipe).take(SAID_BYTES_MAX).read_to_string(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_apparmor_is_the_reason_its_profile_is_the_cure() {
        let refused = Finding { tier: Some(Tier::Landlock), ..Finding::default() };
        let cure = refused.cure().unwrap();
        assert!(cure.contains("seccomp=unconfined"), "{cure}");
        let by_apparmor = Finding { apparmor: true, ..refused };
        let cure = by_apparmor.cure().unwrap();
        assert!(cure.contains("contrib/apparmor/dogwatch") && !cure.contains("Docker"), "{cure}");
        let well = Finding { tier: Some(Tier::Namespaces), ..by_apparmor };
        assert_eq!(well.cure(), None);
    }

    #[test]
    fn what_bounds_memory_is_always_said() {
        let held = Finding { groups: Some(Group::nowhere()), ..Finding::default() };
        assert!(held.bounded().contains("v2") && held.cure_of_groups().is_none());
        let why = Some("read-only".to_owned());
        let alone = Finding { no_group: why, ..Finding::default() };
        assert!(alone.bounded().contains("read-only") && alone.cure_of_groups().is_some());
    }
}
