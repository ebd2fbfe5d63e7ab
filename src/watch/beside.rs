//! The program that stands beside each script: which one it is, and what it understands. Must not
//! know what a shim does.
//!
//! A process of the whole bot has some 640 KiB that nobody shares with it, since the loader writes
//! to all that has addresses in it, and takes twice as long to begin. So the shim is a small
//! program of its own, `dogwatch-shim`, where that stands beside the bot's; else it is the bot's.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::{probe, shim, spawn};
use crate::core::output::one_line;

/// The program's name.
const NAME: &str = "dogwatch-shim";
/// Asks it for its version.
pub(super) const VERSION: &str = "version";
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Of a file's mode.
const WRITABLE_BY_ALL: u32 = 0o002;

/// The small program beside this one, or why it is not used. Blocking, for 10 seconds at most.
pub fn shim_of(program: &Path) -> Result<PathBuf, String> {
    let path = program.with_file_name(NAME);
    let Some(is) = path.metadata().ok().filter(Metadata::is_file) else {
        return Err(format!("there is no {}", path.display()));
    };
    if !is_trusted(&is, program) {
        return Err(format!("{} can be changed by others, so it is not run", path.display()));
    }
    let said = spawn::version(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let said = String::from_utf8_lossy(&said);
    if said.trim() == OWN_VERSION {
        return Ok(path);
    }
    let said: String = one_line(said.trim()).chars().take(40).collect();
    Err(format!("{} says that it is of version '{said}', this is {OWN_VERSION}", path.display()))
}

/// Is it whose this program is? Where both lie in a directory like `/tmp`, anybody could have put
/// it there.
fn is_trusted(beside: &Metadata, program: &Path) -> bool {
    let own = [0, geteuid().as_raw()];
    let of_program = program.metadata().is_ok_and(|program| program.uid() == beside.uid());
    (own.contains(&beside.uid()) || of_program) && beside.mode() & WRITABLE_BY_ALL == 0
}

/// The whole of that program. Answers its exit code.
pub fn beside(args: impl Iterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.skip(1).collect();
    let args: Vec<&OsStr> = args.iter().map(OsString::as_os_str).collect();
    let is = |word: &OsStr, wanted: &str| word == wanted;
    match args[..] {
        [word, dir] if is(word, "shim") => shim::run(Path::new(dir)),
        [word, _place, _room] if is(word, "zygote") => shim::zygote::run(),
        [word, python, limits, place] if is(word, "probe") => {
            probe::run(Path::new(python), &limits.to_string_lossy(), Path::new(place))
        }
        [word] if is(word, VERSION) => u8::from(writeln!(io::stdout(), "{OWN_VERSION}").is_err()),
        _ => {
            let _unheard = writeln!(
                io::stderr(),
                "{NAME}: the bot starts it, one for each script; there is nothing to be done by \
                 hand, `dogwatch --help` lists what is"
            );
            64
        }
    }
}
