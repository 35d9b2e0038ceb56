//! A SQLite file as tables that may lack columns, hold other types than they say, or be damaged.
//!
//! In: a path. Out: the rows of a table with the columns asked for, one at a time, and how many were lost to damage. The
//! file is opened read-only and as one that nobody changes, so that SQLite takes no lock, makes no file beside it and
//! replays no journal. It must never trust a table to have a column, and never end early without saying so.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// What every SQLite file begins with.
pub(super) const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// A database that was opened.
pub(super) struct Database {
    connection: Connection,
    /// Names of all tables and of their columns.
    tables: HashMap<String, Vec<String>>,
    /// Why the list of tables may be incomplete.
    pub damaged: Option<String>,
    /// Values of a type that can't be used where they stand.
    wrong_types: Cell<u64>,
}

/// How reading a table went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    pub rows: u64,
    /// What SQLite says about the first unreadable row.
    pub error: Option<String>,
    /// How many rows were unreadable; `None` where that can't be told.
    pub lost: Option<u64>,
}

/// One row; columns are counted in the order in which they were asked for.
pub(super) struct Row<'a> {
    row: &'a rusqlite::Row<'a>,
    wrong_types: &'a Cell<u64>,
}

impl Row<'_> {
    /// A whole number. Numbers written as text or with a fraction of zero are taken for what they mean.
    pub(super) fn int(&self, column: usize) -> Option<i64> {
        // The first column of the query is the row's own number.
        let value = match self.row.get_ref(column + 1) {
            Ok(ValueRef::Integer(number)) => return Some(number),
            Ok(ValueRef::Null) | Err(_) => return None,
            #[expect(clippy::cast_possible_truncation, reason = "the bounds are checked, `as` saturates")]
            Ok(ValueRef::Real(number)) => {
                (number.fract() == 0.0 && number.abs() < 9.0e18).then_some(number as i64)
            }
            Ok(ValueRef::Text(text)) => {
                std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok())
            }
            Ok(ValueRef::Blob(_)) => None,
        };
        if value.is_none() {
            self.wrong_types.set(self.wrong_types.get() + 1);
        }
        value
    }

    /// A number that is never negative; a negative one is as good as absent.
    pub(super) fn unsigned(&self, column: usize) -> Option<u64> {
        self.int(column).and_then(|number| u64::try_from(number).ok())
    }

    /// A text; bytes that are no UTF-8 are replaced.
    pub(super) fn text(&self, column: usize) -> Option<Cow<'_, str>> {
        match self.row.get_ref(column + 1) {
            Ok(ValueRef::Text(text)) => Some(String::from_utf8_lossy(text)),
            Ok(ValueRef::Integer(number)) => Some(Cow::Owned(number.to_string())),
            Ok(ValueRef::Real(number)) => Some(Cow::Owned(number.to_string())),
            Ok(ValueRef::Null) | Err(_) => None,
            Ok(ValueRef::Blob(_)) => {
                self.wrong_types.set(self.wrong_types.get() + 1);
                None
            }
        }
    }
}

impl Database {
    /// Opens the file, and finds out what tables there are.
    ///
    /// # Errors
    /// Says what is wrong when not even the list of tables can be read.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let strict = Self::open_with(path, false);
        match strict {
            Ok(database) => Ok(database),
            // SQLite refuses a file that is shorter than it says, and a list of tables with a fault in it. Told that the
            // list may be written, it takes what it can get; nothing is ever written.
            Err(error) => match Self::open_with(path, true) {
                Ok(mut database) if !database.tables.is_empty() => {
                    database.damaged = Some(error);
                    Ok(database)
                }
                _ => Err(error),
            },
        }
    }

    fn open_with(path: &Path, lenient: bool) -> Result<Self, String> {
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let say = |error: rusqlite::Error| error.to_string();
        let connection = Connection::open_with_flags(uri(path), flags).map_err(say)?;
        let mut settings =
            String::from("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA query_only = ON;");
        if lenient {
            settings.push_str("PRAGMA writable_schema = ON;");
        }
        connection.execute_batch(&settings).map_err(say)?;
        let mut database =
            Self { connection, tables: HashMap::new(), damaged: None, wrong_types: Cell::new(0) };
        // Views and virtual tables are programs, and no exporter makes any.
        let names = database.names().map_err(say)?;
        for name in names {
            let columns = database.columns(&name).map_err(say);
            match columns {
                Ok(columns) => {
                    database.tables.insert(name, columns);
                }
                Err(error) if !lenient => return Err(error),
                Err(_) => {}
            }
        }
        Ok(database)
    }

    fn names(&self) -> rusqlite::Result<Vec<String>> {
        let mut statement = self.connection.prepare(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name",
        )?;
        let names = statement.query_map([], |row| row.get::<_, String>(0))?;
        names.collect()
    }

    fn columns(&self, table: &str) -> rusqlite::Result<Vec<String>> {
        let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let names = statement.query_map([table], |row| row.get::<_, String>(0))?;
        names.collect()
    }

    /// Names of all tables, sorted.
    pub(super) fn tables(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.tables.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Whether there is a table of that name.
    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Whether that table has that column. SQLite's names are the same in any case.
    pub(super) fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables
            .get(table)
            .is_some_and(|columns| columns.iter().any(|name| name.eq_ignore_ascii_case(column)))
    }

    /// Values so far that had a type that can't be used where they stand.
    pub(super) fn wrong_types(&self) -> u64 {
        self.wrong_types.get()
    }

    /// Highest row number of a table, which for a table that was only ever added to is the number of its rows.
    pub(super) fn row_count(&self, table: &str) -> u64 {
        if !self.has(table) {
            return 0;
        }
        self.connection
            .query_row(&format!("SELECT max(rowid) FROM {}", quoted(table)), [], |row| {
                row.get::<_, Option<i64>>(0)
            })
            .ok()
            .flatten()
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or(0)
    }

    /// The first value in a column that is a whole number.
    pub(super) fn first(&self, table: &str, column: &str) -> Option<i64> {
        if !self.has_column(table, column) {
            return None;
        }
        let column = quoted(column);
        let query =
            format!("SELECT {column} FROM {} WHERE typeof({column}) = 'integer' LIMIT 1", quoted(table));
        self.connection.query_row(&query, [], |row| row.get(0)).ok()
    }

    /// Gives every row of a table to `each`; columns that the table lacks are without a value, `a|b` is the first of the two
    /// that has one. After damage the rest is read from the other end of the table.
    pub(super) fn scan(
        &self,
        table: &str,
        columns: &[&str],
        condition: Option<&str>,
        each: &mut dyn FnMut(&Row<'_>),
    ) -> Scan {
        let mut scan = Scan::default();
        if !self.has(table) {
            return scan;
        }
        let list: Vec<String> = columns.iter().map(|column| self.expression(table, column)).collect();
        let where_it = condition.map_or_else(String::new, |condition| format!(" WHERE {condition}"));
        let query = |order: &str| {
            format!(
                "SELECT rowid, {} FROM {}{where_it} ORDER BY rowid{order}",
                list.join(", "),
                quoted(table)
            )
        };
        let (_, error) = self.step(&query(""), None, &mut scan.rows, each);
        if let Some(error) = error {
            let last = self.number_of(table, &where_it, scan.rows);
            let until = Some(last.unwrap_or(i64::MIN));
            let (first_after, _) = self.step(&query(" DESC"), until, &mut scan.rows, each);
            // Row numbers of an export count up without gaps.
            scan.lost = match (first_after, condition) {
                (Some(after), None) => u64::try_from(after.saturating_sub(last.unwrap_or(0)) - 1).ok(),
                _ => None,
            };
            scan.error = Some(error);
        }
        scan
    }

    /// A column, or the first of several that has a value, as SQLite gets it.
    fn expression(&self, table: &str, columns: &str) -> String {
        let there: Vec<String> =
            columns.split('|').filter(|column| self.has_column(table, column)).map(quoted).collect();
        match there.as_slice() {
            [] => "NULL".to_owned(),
            [one] => one.clone(),
            several => format!("coalesce({})", several.join(", ")),
        }
    }

    /// Number of the `count`-th of the rows of a table that are asked for. Looked up for only after damage, because each value read from a row costs time.
    fn number_of(&self, table: &str, where_it: &str, count: u64) -> Option<i64> {
        let before = i64::try_from(count.checked_sub(1)?).ok()?;
        let query =
            format!("SELECT rowid FROM {}{where_it} ORDER BY rowid LIMIT 1 OFFSET {before}", quoted(table));
        self.connection.query_row(&query, [], |row| row.get(0)).ok()
    }

    /// Steps through a query until it ends, fails, or comes to the row number `until`. Answers the number of the last row that
    /// was read, if there is such a limit.
    fn step(
        &self,
        query: &str,
        until: Option<i64>,
        rows_read: &mut u64,
        each: &mut dyn FnMut(&Row<'_>),
    ) -> (Option<i64>, Option<String>) {
        let mut last = None;
        let mut statement = match self.connection.prepare(query) {
            Ok(statement) => statement,
            Err(error) => return (None, Some(error.to_string())),
        };
        let mut rows = match statement.query([]) {
            Ok(rows) => rows,
            Err(error) => return (None, Some(error.to_string())),
        };
        loop {
            match rows.next() {
                Ok(Some(row)) => {
                    if let Some(until) = until {
                        let number = row.get::<_, i64>(0).unwrap_or(0);
                        if number <= until {
                            return (last, None);
                        }
                        last = Some(number);
                    }
                    *rows_read += 1;
                    each(&Row { row, wrong_types: &self.wrong_types });
                }
                Ok(None) => return (last, None),
                Err(error) => return (last, Some(error.to_string())),
            }
        }
    }

    /// What SQLite finds wrong with the pages and rows of a table. Damage can take rows away and leave a table that reads well.
    pub(super) fn check(&self, table: &str) -> Option<String> {
        if !self.has(table) {
            return None;
        }
        let query = format!("PRAGMA quick_check({})", quoted(table));
        let found = self.connection.query_row(&query, [], |row| row.get::<_, String>(0));
        match found {
            Ok(text) if text == "ok" => None,
            Ok(text) => Some(text.lines().last().unwrap_or_default().to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// The value of a column of the row with that number.
    pub(super) fn text_at(&self, table: &str, column: &str, rowid: i64) -> Option<String> {
        if !self.has_column(table, column) {
            return None;
        }
        let query = format!("SELECT rowid, {} FROM {} WHERE rowid = ?1", quoted(column), quoted(table));
        let mut statement = self.connection.prepare_cached(&query).ok()?;
        let mut rows = statement.query([rowid]).ok()?;
        let row = rows.next().ok()??;
        Row { row, wrong_types: &self.wrong_types }.text(0).map(Cow::into_owned)
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The path as a URI that says that nobody changes the file: no locks, no journal, no file beside it.
fn uri(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    let mut uri = String::from("file:");
    // A URI must not begin with two slashes unless a host follows; `./` makes a relative path start with neither.
    if path.is_relative() {
        uri.push_str("./");
    }
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    uri
}

/// How long the file is, and how long it says it is, where that is more.
pub(super) fn cut_off(path: &Path) -> io::Result<Option<(u64, u64)>> {
    let mut header = [0u8; 100];
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if file.read_exact(&mut header).is_err() {
        return Ok(Some((length, 100)));
    }
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let page_size = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        size => size,
    };
    // The number of pages counts only when it was written together with the last change (SQLite file format, 1.3.7).
    let valid = word(24) == word(92) && word(28) > 0;
    let says = page_size * u64::from(word(28));
    Ok((valid && says > length).then_some((length, says)))
}

/// A file beside the database that holds changes which are not in it.
pub(super) fn unmerged(path: &Path) -> Option<PathBuf> {
    ["-wal", "-journal"].into_iter().find_map(|ending| {
        let mut name = path.file_name()?.to_owned();
        name.push(ending);
        let beside = path.with_file_name(name);
        std::fs::metadata(&beside).is_ok_and(|metadata| metadata.len() > 0).then_some(beside)
    })
}
