//! Option files of MySQL's and MariaDB's clients, such as `~/.my.cnf` (their manuals, "Using Option Files"). They are
//! bytes: the file has no encoding. What the manuals leave open is as in MariaDB 10.11.

const COMMENTS: [u8; 2] = [b'#', b';'];
const ESCAPE: u8 = b'\\';
const NO_BREAK_SPACE: u8 = 0xa0;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The clients split longer lines.
const MAX_LINE_BYTES: usize = 4000;
const PASSWORD: &[u8] = b"password";
/// Shorter beginnings are those of other options, too, and refused by the clients.
const MIN_PASSWORD_BYTES: usize = 3;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directive {
    Group(Vec<u8>),
    Option {
        name: Vec<u8>,
        /// `None` without `=`.
        value: Option<Vec<u8>>,
    },
    /// The path of a file.
    Include(Vec<u8>),
    /// The path of a directory, whose files with the extension `.cnf` are read.
    IncludeDirectory(Vec<u8>),
}

/// Why the clients, or we, do not read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionFileError {
    #[error("a group has no ]")]
    Group,
    #[error("an option before the first [group]")]
    NoGroup,
    #[error("it begins with a byte order mark (BOM): save it without")]
    ByteOrderMark,
    #[error("an !include or !includedir without a path")]
    NoPath,
    /// The clients cut the path by one byte.
    #[error("no line end after an !include or !includedir")]
    NoLineEnd,
    #[error("the line is too long")]
    TooLong,
}

/// The directives of a file, each with its line. Ends after the first fault.
pub struct OptionFile<'a> {
    rest: &'a [u8],
    line: usize,
    has_group: bool,
}

/// What an option says about the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSetting {
    /// The client asks the user.
    Ask,
    Password(Vec<u8>),
}

impl<'a> OptionFile<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, line: 0, has_group: false }
    }

    fn directive(&mut self, line: &[u8], line_end: LineEnd) -> Result<Option<Directive>, OptionFileError> {
        if self.line == 1 && line.starts_with(BYTE_ORDER_MARK) {
            return Err(OptionFileError::ByteOrderMark);
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(OptionFileError::TooLong);
        }
        // To the clients, a line is a string of C.
        let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
        match trim_start(line) {
            [] => Ok(None),
            [first, ..] if COMMENTS.contains(first) => Ok(None),
            [b'!', rest @ ..] => include(trim_start(rest), line_end),
            [b'[', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b']').ok_or(OptionFileError::Group)?;
                self.has_group = true;
                Ok(Some(Directive::Group(trim_end(&rest[..end]).to_vec())))
            }
            _ if !self.has_group => Err(OptionFileError::NoGroup),
            option => Ok(Some(self::option(without_comment(option)))),
        }
    }
}

impl Iterator for OptionFile<'_> {
    type Item = (usize, Result<Directive, OptionFileError>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let (line, line_end) = match end {
                Some(end) => (&self.rest[..end], LineEnd::Present),
                None => (self.rest, LineEnd::Absent),
            };
            self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
            self.line += 1;
            let directive = self.directive(line, line_end);
            if directive.is_err() {
                self.rest = &[];
            }
            if let Some(directive) = directive.transpose() {
                return Some((self.line, directive));
            }
        }
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Present,
    Absent,
}

/// Other words after a `!` are ignored.
fn include(text: &[u8], line_end: LineEnd) -> Result<Option<Directive>, OptionFileError> {
    let keyword_end = text.iter().position(|byte| is_space(*byte)).unwrap_or(text.len());
    let (keyword, path) = text.split_at(keyword_end);
    let of: fn(Vec<u8>) -> Directive = match keyword {
        b"include" => Directive::Include,
        b"includedir" => Directive::IncludeDirectory,
        _ => return Ok(None),
    };
    match (trim_end(trim_start(path)), line_end) {
        ([], _) => Err(OptionFileError::NoPath),
        (_, LineEnd::Absent) => Err(OptionFileError::NoLineEnd),
        (path, LineEnd::Present) => Ok(Some(of(path.to_vec()))),
    }
}

fn option(text: &[u8]) -> Directive {
    let at = text.iter().position(|byte| *byte == b'=');
    let name = trim_end(&text[..at.unwrap_or(text.len())]).to_vec();
    Directive::Option { name, value: at.map(|at| value(&text[at + 1..])) }
}

/// Without spaces and quotes around it, and with escapes replaced.
fn value(text: &[u8]) -> Vec<u8> {
    let text = match trim_end(trim_start(text)) {
        [first @ (b'"' | b'\''), inner @ .., last] if first == last => inner,
        text => text,
    };
    let mut value = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        let escaped = if byte == ESCAPE { bytes.next() } else { None };
        match escaped {
            None => value.push(byte),
            Some(b'n') => value.push(b'\n'),
            Some(b't') => value.push(b'\t'),
            Some(b'r') => value.push(b'\r'),
            Some(b'b') => value.push(0x08),
            Some(b's') => value.push(b' '),
            Some(quoted @ (b'"' | b'\'' | ESCAPE)) => value.push(quoted),
            Some(other) => value.extend([ESCAPE, other]),
        }
    }
    value
}

/// A `#` begins a comment unless it is between quotes. A backslash protects a quote only between quotes.
fn without_comment(text: &[u8]) -> &[u8] {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, byte) in text.iter().copied().enumerate() {
        match (byte, quote) {
            (b'#', None) => return &text[..at],
            (b'"' | b'\'', None) if !is_escaped => quote = Some(byte),
            (_, Some(open)) if byte == open && !is_escaped => quote = None,
            _ => {}
        }
        is_escaped = quote.is_some() && byte == ESCAPE && !is_escaped;
    }
    text
}

impl PasswordSetting {
    /// `None` if the option does not set the password. Names are compared as the clients do: without case, `-` like `_`, a
    /// unique beginning suffices, and prefixes such as `loose-` are allowed.
    pub fn of(name: &[u8], value: Option<&[u8]>) -> Option<Self> {
        let name: Vec<u8> =
            name.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect();
        let (mut name, mut is_disabled) = (name.as_slice(), false);
        loop {
            if name.len() >= MIN_PASSWORD_BYTES && PASSWORD.starts_with(name) {
                return Some(match value {
                    _ if is_disabled => Self::Password(Vec::new()),
                    Some(value) => Self::Password(value.to_vec()),
                    None => Self::Ask,
                });
            }
            let disabled = [&b"skip-"[..], b"disable-"].iter().find_map(|prefix| name.strip_prefix(*prefix));
            is_disabled |= disabled.is_some();
            let other = || [&b"loose-"[..], b"maximum-"].iter().find_map(|prefix| name.strip_prefix(*prefix));
            name = disabled.or_else(other)?;
        }
    }
}

/// In the clients' character set, Latin-1.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ' | NO_BREAK_SPACE)
}

fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len());
    &text[start..]
}

fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !is_space(*byte)).map_or(0, |last| last + 1);
    &text[..end]
}

#[cfg(test)]
mod tests;
