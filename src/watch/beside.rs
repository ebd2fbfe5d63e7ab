//! The program that stands beside each script: which one it is, and what it understands. Must not
//! know what a shim does.
//!
//! A process of the whole bot has some 640 KiB that nobody shares with it, since the loader writes
//! to all that has addresses in it, and takes twice as long to begin. So the shim is a small
//! program of its own, `dogwatch-shim`, where that stands beside the bot's; else it is the bot's.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{probe, shim, spawn};

/// The program's name.
const NAME: &str = "dogwatch-shim";
/// Asks it for its version.
pub(super) const VERSION: &str = "version";
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The small program beside this one, or why it is not used.
pub fn shim_of(program: &Path) -> Result<PathBuf, String> {
    let path = program.with_file_name(NAME);
    if !path.is_file() {
        return Err(format!("there is no {}", path.display()));
    }
    let said = spawn::version(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let said = String::from_utf8_lossy(&said.stdout);
    if said.trim() == OWN_VERSION {
        return Ok(path);
    }
    let said: String = said.trim().chars().take(40).collect();
    Err(format!("{} says that it is of version '{said}', this is {OWN_VERSION}", path.display()))
}

/// The whole of that program. Answers its exit code.
pub fn beside(args: impl Iterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.skip(1).collect();
    let args: Vec<&OsStr> = args.iter().map(OsString::as_os_str).collect();
    let is = |word: &OsStr, wanted: &str| word == wanted;
    match args[..] {
        [word, dir] if is(word, "shim") => shim::run(Path::new(dir)),
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
