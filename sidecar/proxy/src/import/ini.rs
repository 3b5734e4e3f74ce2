//! The syntax of `pgbouncer.ini`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Far larger than any configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// PgBouncer's limit of files that include each other.
const MAX_DEPTH: usize = 10;
/// Entries of all files.
const MAX_ENTRIES: usize = 10_000;

/// Why a configuration cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {reason}", path.display())]
    Syntax { path: PathBuf, line: usize, reason: &'static str },
    #[error("there is no database \"{0}\" in [databases]")]
    NoDatabase(String),
}

/// The entries of all sections, in the order of the files.
#[derive(Debug, Default)]
pub(super) struct IniFile {
    pub(super) settings: Vec<(String, String)>,
    pub(super) databases: Vec<IniEntry>,
    pub(super) users: Vec<IniEntry>,
    /// Sections that are not known, and those of peers.
    pub(super) other_sections: Vec<String>,
}

/// An entry whose value is a list of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IniEntry {
    pub(super) name: String,
    pub(super) settings: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    None,
    Settings,
    Databases,
    Users,
    Other,
}

impl IniFile {
    /// The last value of a setting; empty ones count as not set.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.settings.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

impl IniEntry {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.settings.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

pub(super) fn read(path: &Path) -> Result<IniFile, ImportError> {
    let mut file = IniFile::default();
    let mut section = Section::None;
    read_into(path, &mut file, &mut section, 0)?;
    Ok(file)
}

pub(super) fn read_text(path: &Path) -> Result<String, ImportError> {
    let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable(io::Error::other("it is longer than 1 MiB")));
    }
    String::from_utf8(bytes).map_err(|_| unreadable(io::Error::other("it is not valid UTF-8")))
}

fn read_into(
    path: &Path,
    file: &mut IniFile,
    section: &mut Section,
    depth: usize,
) -> Result<(), ImportError> {
    let text = read_text(path)?;
    for (at, line) in text.lines().enumerate() {
        let wrong = |reason| ImportError::Syntax { path: path.to_owned(), line: at + 1, reason };
        let line = line.trim();
        if let Some(included) = line.strip_prefix("%include") {
            if depth >= MAX_DEPTH {
                return Err(wrong("too many files include each other"));
            }
            read_into(Path::new(included.trim()), file, section, depth + 1)?;
        } else if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| wrong("a section ends with ]"))?.trim();
            *section = match name {
                "pgbouncer" => Section::Settings,
                "databases" => Section::Databases,
                "users" => Section::Users,
                other => {
                    file.other_sections.push(other.to_owned());
                    Section::Other
                }
            };
        } else if !(line.is_empty() || line.starts_with([';', '#'])) {
            let (name, rest) = key(line).ok_or_else(|| wrong("expected NAME = VALUE"))?;
            let count = file.settings.len() + file.databases.len() + file.users.len();
            if count >= MAX_ENTRIES {
                return Err(wrong("there are too many entries"));
            }
            let entry = || {
                let settings = pairs(rest).ok_or_else(|| wrong("expected a list of NAME=VALUE"))?;
                Ok(IniEntry { name: name.clone(), settings })
            };
            match section {
                Section::Settings => file.settings.push((name, rest.to_owned())),
                Section::Databases => file.databases.push(entry()?),
                Section::Users => file.users.push(entry()?),
                Section::Other => {}
                Section::None => return Err(wrong("a setting comes before the first section")),
            }
        }
    }
    Ok(())
}

/// A name, in double quotes if it has other characters, and what follows the equals sign.
fn key(line: &str) -> Option<(String, &str)> {
    let (name, rest) = if let Some(quoted) = line.strip_prefix('"') {
        until_quote(quoted, '"')?
    } else {
        let end = line.find('=')?;
        (line[..end].trim().to_owned(), &line[end..])
    };
    let value = rest.trim_start().strip_prefix('=')?;
    (!name.is_empty()).then(|| (name, value.trim()))
}

/// `NAME=VALUE` pairs, as in libpq's connection strings. Values may be in single quotes.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let (mut pairs, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let end = rest.find('=')?;
        let name = rest[..end].trim();
        let after = rest[end + 1..].trim_start();
        let (value, after) = if let Some(quoted) = after.strip_prefix('\'') {
            until_quote(quoted, '\'')?
        } else {
            let end = after.find(char::is_whitespace).unwrap_or(after.len());
            (after[..end].to_owned(), &after[end..])
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        pairs.push((name.to_owned(), value));
        rest = after.trim_start();
    }
    Some(pairs)
}

/// The text up to the quotation mark, of which two stand for one, and what follows.
pub(super) fn until_quote(text: &str, quote: char) -> Option<(String, &str)> {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let end = rest.find(quote)?;
        value.push_str(&rest[..end]);
        rest = &rest[end + quote.len_utf8()..];
        match rest.strip_prefix(quote) {
            Some(more) => {
                value.push(quote);
                rest = more;
            }
            None => return Some((value, rest)),
        }
    }
}
