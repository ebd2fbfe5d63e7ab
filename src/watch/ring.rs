//! What a script printed, in a file of fixed size: the first bytes of a stream and a ring of its
//! last ones, under a header with the counts. Owns the layout. The shim writes through a mapping,
//! so a killed shim leaves everything it took; the bot reads the file at any time. Must not know
//! text: bytes become text in `core::output`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{Ordering, compiler_fence};

use memmap2::MmapMut;
use nix::fcntl::posix_fallocate;

use super::file;
use crate::core::limits::OUTPUT_BYTES_MAX;

const MAGIC: [u8; 8] = *b"dogring1";
/// Bytes of the stream up to which the ring is being overwritten.
const BEGUN: usize = 8;
/// Bytes of the stream that are written.
const DONE: usize = 16;
/// When the script was let run, wall time in milliseconds; 0 before that.
const STARTED: usize = 24;
const HEADER: usize = 64;
const HEAD: usize = OUTPUT_BYTES_MAX / 2;
const TAIL: usize = OUTPUT_BYTES_MAX - HEAD;
const FILE: usize = HEADER + HEAD + TAIL;

/// Creates an empty one with all its blocks, so that a full disk cannot take output away.
pub(super) fn create(path: &Path) -> io::Result<()> {
    let file = file::open(path, OpenOptions::new().write(true).create_new(true))?;
    posix_fallocate(&file, 0, i64::try_from(FILE).map_err(io::Error::other)?)?;
    file.write_all_at(&MAGIC, 0)
}

fn open(path: &Path, write: bool) -> io::Result<File> {
    let file = file::open(path, OpenOptions::new().read(true).write(write))?;
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0)?;
    if magic != MAGIC || file.metadata()?.len() != FILE as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not an output file of a script"));
    }
    Ok(file)
}

/// The shim's side.
pub(super) struct Writer {
    map: MmapMut,
    done: u64,
}

impl Writer {
    /// Maps an existing file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path, true)?;
        // Nobody but this process changes the file's length, and only whole files are mapped. A
        // script of the same user could still truncate it, which ends this shim, not the bot.
        #[expect(unsafe_code, reason = "a mapping is the only memory that outlives a killed shim")]
        let map = unsafe { MmapMut::map_mut(&file)? };
        Ok(Self { map, done: 0 })
    }

    /// Notes when the script was let run.
    pub(super) fn started(&mut self, wall_ms: u64) {
        put(&mut self.map, STARTED, &wall_ms.to_le_bytes());
    }

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let begun = self.done + bytes.len() as u64;
        // A kill may come between any two of these: the counts say which bytes are whole.
        put(&mut self.map, BEGUN, &begun.to_le_bytes());
        compiler_fence(Ordering::SeqCst);
        for (at, part) in places(self.done, bytes) {
            put(&mut self.map, HEADER + at, part);
        }
        compiler_fence(Ordering::SeqCst);
        put(&mut self.map, DONE, &begun.to_le_bytes());
        self.done = begun;
    }

    /// Brings what was taken to the disk. Where that is nothing, an empty file says as much as one
    /// that a power failure took, and each flush is one that somebody waits for.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.done == 0 { Ok(()) } else { self.map.flush() }
    }
}

fn put(map: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = map.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Where the next bytes go after `done` bytes, as offsets behind the header: into the rest of the
/// head, to the ring's end and from its beginning. Bytes that would be overwritten at once go
/// nowhere.
fn places(done: u64, bytes: &[u8]) -> [(usize, &[u8]); 3] {
    let room = (HEAD as u64).saturating_sub(done);
    let (head, rest) = bytes.split_at(bytes.len().min(to_usize(room)));
    let (_, last) = rest.split_at(rest.len().saturating_sub(TAIL));
    let first = done + (bytes.len() - last.len()) as u64;
    let at = ring_at(first);
    let (upper, lower) = last.split_at(last.len().min(TAIL - at));
    [(to_usize(done).min(HEAD), head), (HEAD + at, upper), (HEAD, lower)]
}

/// The ring's offset for the stream's byte number `n`, which is behind the head.
fn ring_at(n: u64) -> usize {
    to_usize(n.saturating_sub(HEAD as u64) % TAIL as u64)
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// What a file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// The first bytes.
    pub(super) head: Vec<u8>,
    /// The last bytes behind those.
    pub(super) tail: Vec<u8>,
    /// Bytes that the stream had in all.
    pub(super) bytes: u64,
    /// When the script was let run, `None` when it never was.
    pub(super) started_ms: Option<u64>,
}

/// Reads a file, also while it is written: bytes that are being overwritten are left out.
pub(super) fn read(path: &Path) -> io::Result<Kept> {
    let file = open(path, false)?;
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0)?;
    let mut data = vec![0; HEAD + TAIL];
    file.read_exact_at(&mut data, HEADER as u64)?;
    let mut after = [0; HEADER];
    file.read_exact_at(&mut after, 0)?;
    let started = number(&header, STARTED);
    let mut kept = whole(&data, number(&header, DONE), number(&after, BEGUN));
    kept.started_ms = (started > 0).then_some(started);
    Ok(kept)
}

fn number(header: &[u8], at: usize) -> u64 {
    header.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok()).map_or(0, u64::from_le_bytes)
}

/// The bytes of `data` that are sure to be whole, of `done` bytes while up to `begun` are written.
fn whole(data: &[u8], done: u64, begun: u64) -> Kept {
    let head = data.get(..to_usize(done).min(HEAD)).unwrap_or_default().to_vec();
    let ring = data.get(HEAD..).unwrap_or_default();
    let oldest = begun.saturating_sub(TAIL as u64).max(HEAD as u64);
    let length = to_usize(done.saturating_sub(oldest)).min(TAIL);
    let tail = ring.iter().cycle().skip(ring_at(oldest)).take(length).copied().collect();
    Kept { head, tail, bytes: done, started_ms: None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(n: usize) -> Vec<u8> {
        (0..n).map(|i| u8::try_from(i % 251).unwrap()).collect()
    }

    fn written(chunks: &[usize]) -> (Vec<u8>, Vec<u8>) {
        let all = stream(chunks.iter().sum());
        let mut data = vec![0; HEAD + TAIL];
        let mut done = 0;
        for n in chunks {
            let bytes = &all[done..done + n];
            for (at, part) in places(done as u64, bytes) {
                put(&mut data, at, part);
            }
            done += n;
        }
        (all, data)
    }

    proptest! {
        #[test]
        fn head_and_tail_are_the_streams_own(
            chunks in prop::collection::vec(0..3 * TAIL, 0..12)
        ) {
            let (all, data) = written(&chunks);
            let n = all.len();
            let kept = whole(&data, n as u64, n as u64);
            prop_assert_eq!(&kept.head[..], &all[..n.min(HEAD)]);
            let from = n.saturating_sub(TAIL).max(HEAD).min(n);
            prop_assert_eq!(&kept.tail[..], &all[from..]);
        }

        #[test]
        fn a_write_cut_short_costs_only_what_it_overwrote(
            chunks in prop::collection::vec(1..TAIL, 1..8), last in 1..2 * TAIL, torn in 0..TAIL,
        ) {
            let (all, mut data) = written(&chunks);
            let n = all.len() as u64;
            let garbage = vec![255; last];
            for (at, part) in places(n, &garbage) {
                put(&mut data, at, &part[..part.len().min(torn)]);
            }
            let kept = whole(&data, n, n + last as u64);
            prop_assert!(all.ends_with(&kept.tail));
            prop_assert_eq!(&kept.head[..], &all[..all.len().min(HEAD)]);
        }
    }

    #[test]
    fn a_file_keeps_what_was_pushed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        create(&path).unwrap();
        let mut writer = Writer::open(&path).unwrap();
        assert_eq!(read(&path).unwrap(), Kept::default());
        writer.started(7);
        writer.push(b"one ");
        writer.push(b"two");
        let kept = read(&path).unwrap();
        assert_eq!((kept.head.as_slice(), kept.bytes), (&b"one two"[..], 7));
        assert_eq!(kept.started_ms, Some(7));
    }

    #[test]
    fn counts_that_lie_cost_no_memory() {
        let data = vec![1; HEAD + TAIL];
        let kept = whole(&data, u64::MAX, 0);
        assert_eq!((kept.head.len(), kept.tail.len()), (HEAD, TAIL));
        assert_eq!(whole(&data, 5, u64::MAX).tail.len(), 0);
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        create(&dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("out")).unwrap();
        assert!(read(&dir.path().join("out")).is_err());
    }
}
