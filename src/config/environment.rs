//! The one place that reads the process's environment. Owns where files belong when nothing says
//! so. Must not know what any key means.

use std::path::{Path, PathBuf};

/// How a variable is looked up; tests bring their own.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process's own variables. One that is not UTF-8, or empty, is as good as absent.
#[expect(clippy::disallowed_methods, reason = "this file owns the environment")]
pub fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// `$XDG_STATE_HOME/dogwatch` or `~/.local/state/dogwatch`; `None` where there is no home.
pub(super) fn state_dir(lookup: Lookup<'_>) -> Option<PathBuf> {
    base(lookup, "XDG_STATE_HOME", ".local/state").map(|dir| dir.join("dogwatch"))
}

/// The file that is read when none is named: `$XDG_CONFIG_HOME/dogwatch/dogwatch.toml` or
/// `~/.config/dogwatch/dogwatch.toml`.
pub(super) fn config_file(lookup: Lookup<'_>) -> Option<PathBuf> {
    base(lookup, "XDG_CONFIG_HOME", ".config").map(|dir| dir.join("dogwatch/dogwatch.toml"))
}

/// The XDG rule: a relative path in such a variable is ignored.
fn base(lookup: Lookup<'_>, variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = lookup(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| home(lookup).map(|home| home.join(below_home)))
}

fn home(lookup: Lookup<'_>) -> Option<PathBuf> {
    lookup("HOME").map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A path as written: `~/…` is below home, a relative one below `base`.
pub(super) fn path(lookup: Lookup<'_>, base: &Path, written: &str) -> PathBuf {
    let below_home = written.strip_prefix("~/").and_then(|rest| Some(home(lookup)?.join(rest)));
    let path = below_home.unwrap_or_else(|| base.join(written));
    std::path::absolute(&path).unwrap_or(path)
}
