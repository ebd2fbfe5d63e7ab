//! Opening what a script may have put in place of a file: it runs as the same user, so any name in
//! the spool may be a link, a pipe that nobody writes, a device without end. Owns that no open and
//! no read waits, and that none is without bound. Must not know what the files hold.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a file that may be made by it; anything but a file is refused.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let no_file = || io::Error::new(io::ErrorKind::InvalidData, "what stands there is no file");
    match options.mode(0o600).custom_flags(flags.bits()).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(no_file()),
        Err(_) if path.symlink_metadata().is_ok_and(|is| !is.is_file()) => Err(no_file()),
        Err(error) => Err(error),
    }
}

/// The first bytes of a file.
pub(super) fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open(path, OpenOptions::new().read(true))?;
    file.take(bytes_max as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A directory, to reach what is in it or to bring its names to the disk.
pub(super) fn directory(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", path("link")).unwrap();
        std::fs::create_dir(path("directory")).unwrap();
        for name in ["pipe", "link", "directory"] {
            assert!(read(&path(name), 9).is_err(), "{name}");
            for options in [
                OpenOptions::new().write(true),
                OpenOptions::new().append(true).create(true),
                OpenOptions::new().read(true).write(true).create(true),
            ] {
                assert!(open(&path(name), options).is_err(), "{name}");
            }
        }
        assert!(directory(&path("pipe")).is_err() && directory(&path("link")).is_err());
        assert!(directory(&path("directory")).is_ok());
    }

    #[test]
    fn a_read_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"123");
        assert_eq!(read(&path, 9).unwrap(), b"12345");
    }
}
