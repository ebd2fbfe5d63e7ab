//! Where attacks take place: who runs the script, in which tier, and what there is to be had.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dogwatch::watch::{Limits, Sandbox, Settings, Tier};
use landlock::{ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr};
use nix::unistd::geteuid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::watch::bench::{self, Bench};

/// An ordinary user, and who a script of root's is for the host.
pub(super) const USER: u32 = 1_500;
pub(super) const NOBODY: u32 = 65_534;
/// Where a test that was started again as another user finds its things.
const PLACE: &str = "SANDBOX_TEST_PLACE";

/// Where the program and the directory of a test are.
fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

/// As the launcher of a bot would be, with a sandbox.
pub(super) fn sandboxed(dir: &Path) -> Settings {
    let settings = bench::settings(dir);
    let moved = |name, from: &Path| place().map_or(from.to_owned(), |place| place.join(name));
    let program = moved("dogwatch", &settings.program);
    let shim = moved("dogwatch-shim", &settings.shim);
    let sandbox = Sandbox::Required(Limits::default());
    Settings { sandbox, program, shim, ..settings }
}

/// Small limits, so that they are soon met. Not that of processor time: a slow machine would meet it
/// before the others.
pub(super) fn narrow(dir: &Path) -> Settings {
    let limits = Limits {
        memory_bytes_max: 128 * 1024 * 1024,
        processes_max: 12,
        tmp_bytes_max: 4 * 1024 * 1024,
        files_max: 64,
        ..Limits::default()
    };
    Settings { sandbox: Sandbox::Required(limits), ..sandboxed(dir) }
}

/// Which tier a test is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// Whatever this machine gives.
    Here,
    /// Where namespaces are refused as containers refuse them.
    Contained,
}

impl Where {
    /// The tier that must be found. What this machine has is not asked of our own code.
    fn tier(self) -> Option<Tier> {
        match self {
            Self::Here if has_namespaces() => Some(Tier::Namespaces),
            Self::Here | Self::Contained => has_landlock().then_some(Tier::Landlock),
        }
    }
}

/// Whether the kernel keeps connections to a port, as `within` a tier without namespaces needs it for
/// a network. Not asked of our own code.
pub(super) fn has_ports() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    rules.handle_access(AccessNet::ConnectTcp).and_then(Ruleset::create).is_ok()
}

fn has_landlock() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let rules = rules.handle_access(AccessFs::from_all(ABI::V1));
    rules.and_then(Ruleset::create).is_ok()
}

#[expect(clippy::disallowed_methods, reason = "a witness that is not our own code")]
fn has_namespaces() -> bool {
    let arguments = ["-U", "-m", "-p", "-n", "-i", "-u", "-f", "-r", "--", "mount", "-t", "tmpfs"];
    let mut unshare = Command::new("unshare");
    unshare.args(arguments).args(["none", "/dev"]).stderr(Stdio::null());
    unshare.status().expect("unshare of util-linux").success()
}

/// Runs a test in such a place, on threads of its own that inherit it, with the tier that there must
/// be. Where there can be none it must be found that there is none.
pub(super) fn within(at: Where, test: impl AsyncFnOnce(Tier)) {
    if at == Where::Contained {
        for program in refusals() {
            seccompiler::apply_filter(&program).unwrap();
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match at.tier() {
            Some(tier) => test(tier).await,
            None => assert_eq!(Bench::with(sandboxed).watch().sandbox().unwrap().tier, None),
        }
    });
}

/// What Docker's own filter does: `clone3` is not there, and nothing makes namespaces.
fn refusals() -> [BpfProgram; 2] {
    let program = |rules: Vec<(i64, Vec<SeccompRule>)>, errno: i32| -> BpfProgram {
        let refuse = SeccompAction::Errno(errno.cast_unsigned());
        let machine = std::env::consts::ARCH.try_into().unwrap();
        let rules = rules.into_iter().collect();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, machine).unwrap();
        filter.try_into().unwrap()
    };
    let flag = u64::from(nix::libc::CLONE_NEWUSER.cast_unsigned());
    let new_user = SeccompCmpOp::MaskedEq(flag);
    let new_user = SeccompCondition::new(0, SeccompCmpArgLen::Dword, new_user, flag).unwrap();
    let new_user = SeccompRule::new(vec![new_user]).unwrap();
    let unshare = (nix::libc::SYS_unshare, vec![]);
    let clone = (nix::libc::SYS_clone, vec![new_user]);
    [
        program(vec![(nix::libc::SYS_clone3, vec![])], nix::libc::ENOSYS),
        program(vec![unshare, clone], nix::libc::EPERM),
    ]
}

/// Runs the ignored test `name` as an ordinary user; where this already is one it runs here.
pub(super) fn as_user(name: &str) {
    Again { test: name, env: vec![], user: Some(USER), disk_kib: None }.run();
}

/// An ignored test, run in a process of its own.
pub(super) struct Again<'a> {
    pub(super) test: &'a str,
    pub(super) env: Vec<(&'static str, String)>,
    /// As this ordinary user; where this already is one nothing changes.
    pub(super) user: Option<u32>,
    /// With a small disk at [`disk`].
    pub(super) disk_kib: Option<u64>,
}

/// Mounts a disk that nobody else sees, does what the test asks for there, and runs it.
const LANDLORD: &str = r#"
place=$0
mount -t tmpfs -o "size=$1k,mode=777" disk "$place/disk" || exit 1
shift
mkfifo -m 666 "$place/ask" "$place/done" || exit 1
while read -r word <"$place/ask"; do
    case $word in
    ro) mount -o bind,ro "$place/disk/spool" "$place/disk/spool" ;;
    rw) umount "$place/disk/spool" ;;
    esac
    echo "$?" >"$place/done"
done </dev/null >/dev/null 2>&1 &
"$@"
code=$?
kill "$!"
exit "$code"
"#;

/// The small disk of a test that was started with one.
pub(super) fn disk() -> PathBuf {
    place().expect("a place").join("disk")
}

/// Makes the spool on that disk read-only (`ro`) or takes that back (`rw`).
pub(super) fn ask_landlord(word: &str) {
    let place = place().expect("a place");
    fs::write(place.join("ask"), format!("{word}\n")).unwrap();
    assert_eq!(fs::read_to_string(place.join("done")).unwrap(), "0\n", "{word}");
}

impl Again<'_> {
    #[expect(clippy::disallowed_methods, reason = "another user is another process")]
    pub(super) fn run(self) {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // What is built here may stand where that user cannot go.
        let test = dir.path().join("test");
        let copies = [
            (std::env::current_exe().unwrap(), test.clone()),
            (PathBuf::from(env!("CARGO_BIN_EXE_dogwatch")), dir.path().join("dogwatch")),
            (PathBuf::from(env!("CARGO_BIN_EXE_dogwatch-shim")), dir.path().join("dogwatch-shim")),
        ];
        for (from, to) in copies {
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).unwrap();
            }
        }
        let words = self.words(dir.path(), &test);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env(PLACE, dir.path()).envs(self.env).current_dir("/");
        if let Some(user) = self.user
            && self.disk_kib.is_none()
            && geteuid().is_root()
        {
            command.uid(user).gid(user);
        }
        let ran = command.output().unwrap();
        let told = String::from_utf8_lossy(&ran.stdout).into_owned();
        let complained = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{told}\n{complained}");
        // An `--exact` that names nothing runs nothing, and is well.
        assert!(told.contains("1 passed"), "{told}\n{complained}");
        let _shown = std::io::stdout().write_all(told.as_bytes());
    }

    fn words(&self, dir: &Path, test: &Path) -> Vec<String> {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let (dir, test) = (dir.to_str().unwrap(), test.to_str().unwrap());
        let flags = ["--exact", "--ignored", "--nocapture", "--test-threads=1"];
        let mut words: Vec<String> = vec![];
        if let Some(kib) = self.disk_kib {
            fs::create_dir(format!("{dir}/disk")).unwrap();
            let kib = kib.to_string();
            let user = self.user.unwrap_or(USER).to_string();
            let (mine, become_user): (&[&str], Vec<String>) = if !geteuid().is_root() {
                let to = [format!("--map-user={user}"), format!("--map-group={user}")];
                (&["-r"], owned(&["unshare", "-U", &to[0], &to[1]]))
            } else if self.user.is_some() {
                (&[], owned(&["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]))
            } else {
                (&[], vec![])
            };
            words.extend(owned(&[&["unshare", "-m"], mine].concat()));
            words.extend(owned(&["sh", "-c", LANDLORD, dir, &kib]));
            words.extend(become_user);
        }
        words.extend(owned(&[test, self.test]));
        words.extend(owned(&flags));
        words
    }
}

/// What lies around for an attack to find.
pub(super) struct Loot {
    /// A file of the bot's.
    pub(super) secret: PathBuf,
    /// A process of the same user as the script, with a secret in its environment.
    pub(super) victim: Child,
    /// Something that listens on the host's loopback.
    pub(super) service: TcpListener,
    /// Something that listens on a name of the host's.
    _local: UnixListener,
    /// Something that takes datagrams at a path, from anybody.
    _line: UnixDatagram,
    /// That name.
    pub(super) local: String,
}

pub(super) const SECRET: &str = "a-secret-of-the-bot";

impl Loot {
    #[expect(
        clippy::disallowed_methods,
        reason = "a process that has nothing to do with the spool"
    )]
    pub(super) fn lay(dir: &Path, owner: u32) -> Self {
        let secret = dir.join("bot.toml");
        fs::write(&secret, SECRET).unwrap();
        let place = dir.file_name().and_then(|name| name.to_str()).unwrap();
        let local = format!("dogwatch-test-{place}");
        let address = SocketAddr::from_abstract_name(&local).unwrap();
        let path = dir.join("bot.toml.line");
        let line = UnixDatagram::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let mut victim = Command::new("sleep");
        victim.arg("300").env_clear().env("TOKEN", SECRET).stdin(Stdio::null());
        if geteuid().is_root() {
            chown(&secret, Some(owner), Some(owner)).unwrap();
            victim.uid(owner).gid(owner);
        }
        Self {
            secret,
            victim: victim.spawn().unwrap(),
            service: TcpListener::bind("127.0.0.1:0").unwrap(),
            _local: UnixListener::bind_addr(&address).unwrap(),
            _line: line,
            local,
        }
    }
}

impl Drop for Loot {
    fn drop(&mut self) {
        let _gone = self.victim.kill().and_then(|()| self.victim.wait());
    }
}
