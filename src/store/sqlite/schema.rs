//! Tables, settings and versions of the database file. Owns opening a connection to it. Must not
//! know applies or reads.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::fault::explain;
use crate::core::limits::STORE_BUSY_MS;
use crate::ports::StoreError;

/// The version of the tables, in `PRAGMA user_version`. The rows' own is in their envelope.
pub(super) const SCHEMA: i64 = 1;
/// "dogw" in `PRAGMA application_id`: another program's database is never written to.
const APPLICATION: i64 = 0x646f_6777;

/// The write-ahead log is cut to this once it was longer and is done with.
const WAL_KEPT_BYTES: i64 = 64 * 1024 * 1024;

/// Names are texts, so that a person can read the file with any tool and text order is the order
/// of listings. A score is shifted (see `score`), since `SQLite`'s integers have a sign.
const TABLES: &str = "
CREATE TABLE aggregates (
    name     TEXT PRIMARY KEY,
    revision TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE rows (
    aggregate TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     BLOB NOT NULL,
    PRIMARY KEY (aggregate, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE members (
    member_of TEXT    NOT NULL,
    aggregate TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    score     INTEGER NOT NULL,
    PRIMARY KEY (member_of, aggregate, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_by_score ON members (member_of, score, aggregate, key);
";

/// A score as `SQLite` keeps it: shifted by half the range, so that the order stays.
pub(super) const fn score(score: u64) -> i64 {
    (score ^ (1 << 63)).cast_signed()
}

/// A score as it was before [`score`].
pub(super) const fn unscore(stored: i64) -> u64 {
    stored.cast_unsigned() ^ (1 << 63)
}

/// The connection that writes. Makes the file and its tables where there are none.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    create_private(path)?;
    let open = || -> rusqlite::Result<(Connection, Found)> {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let found = look(&connection)?;
        Ok((connection, found))
    };
    let (mut connection, found) = open().map_err(|e| explain(path, "opening", &e))?;
    if found.tables > 0 {
        check(path, &found)?;
    }
    let mode =
        prepare(&mut connection, found.tables == 0).map_err(|e| explain(path, "preparing", &e))?;
    if mode != "wal" {
        return Err(StoreError::Away(format!(
            "{} cannot have a write-ahead log (SQLite stays in mode {mode}): put it on a local \
             disk, not on a network file system",
            path.display()
        )));
    }
    Ok(connection)
}

/// A connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<(Connection, Found)> {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let found = look(&connection)?;
        Ok((connection, found))
    };
    let (connection, found) = open().map_err(|e| explain(path, "opening", &e))?;
    check(path, &found)?;
    if found.schema < SCHEMA {
        return Err(StoreError::Data(format!(
            "{} has tables of version {}, this program reads version {SCHEMA}: start dogwatch on \
             it once, which brings it up to date",
            path.display(),
            found.schema
        )));
    }
    Ok(connection)
}

/// What people say is in there: nobody else's business. A file that exists is not opened here,
/// since closing it would drop the locks that `SQLite` may hold on it in this process.
fn create_private(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(StoreError::Away(format!(
            "the store {} cannot be made ({e}): its directory must be writable for this user",
            path.display()
        ))),
    }
}

fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_millis(STORE_BUSY_MS))?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

struct Found {
    tables: i64,
    application: i64,
    schema: i64,
}

fn look(connection: &Connection) -> rusqlite::Result<Found> {
    Ok(Found {
        tables: connection.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?,
        application: connection.pragma_query_value(None, "application_id", |r| r.get(0))?,
        schema: connection.pragma_query_value(None, "user_version", |r| r.get(0))?,
    })
}

fn check(path: &Path, found: &Found) -> Result<(), StoreError> {
    let path = path.display();
    if found.tables == 0 {
        return Err(StoreError::Data(format!("{path} is empty: start dogwatch on it first")));
    }
    if found.application != APPLICATION {
        return Err(StoreError::Data(format!(
            "{path} is a database of another program: name another file"
        )));
    }
    if found.schema > SCHEMA {
        return Err(StoreError::Data(format!(
            "{path} has tables of version {}, this program knows up to version {SCHEMA}: use the \
             dogwatch that wrote it, or a newer one",
            found.schema
        )));
    }
    Ok(())
}

/// Answers the journal mode it came to.
fn prepare(connection: &mut Connection, new: bool) -> rusqlite::Result<String> {
    let mode = connection.pragma_update_and_check(None, "journal_mode", "wal", |r| r.get(0))?;
    connection.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    if new {
        let transaction = connection.transaction()?;
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", SCHEMA)?;
        transaction.commit()?;
    }
    // What a killed process left in the WAL may not be on disk yet: from here on it is, so that a
    // durable apply that is found done already is as durable as if it were done now.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifted_scores_keep_their_order_and_come_back() {
        let scores = [0, 1, 1_700_000_000_000, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
        assert!(scores.is_sorted_by_key(|s| score(*s)));
        assert!(scores.iter().all(|s| unscore(score(*s)) == *s));
    }
}
