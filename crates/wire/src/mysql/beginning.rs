//! What a session is at its beginning, as far as `COM_RESET_CONNECTION` does not bring it back: the database, and
//! settings that the login has made (its character set, `CLIENT_IGNORE_SPACE`, `CLIENT_INTERACTIVE`, the server's
//! `init_connect`). Which of them a reset brings back differs: MariaDB's brings a character set back that it knows,
//! `MySQL`'s none, and neither `IGNORE_SPACE`. So it is looked at: once after the login, and once behind the first reset
//! after which they were all changed, and reset again.

use super::{Capabilities, Error, Response, Row, RowsReader, command::encode_query_on};

/// What is looked at; all of it is there since `MySQL` 5.0.
const SETTINGS: [&str; 7] = [
    "character_set_client",
    "collation_connection",
    "character_set_results",
    "sql_mode",
    "wait_timeout",
    "autocommit",
    "time_zone",
];
/// Gives all of them values that nobody wants.
pub(super) const DISTURB: &str = "SET character_set_client=ascii,collation_connection=ascii_general_ci,\
     character_set_results=ascii,sql_mode='NO_UNSIGNED_SUBTRACTION',wait_timeout=27182,\
     autocommit=1-@@autocommit,time_zone='-11:11'";
/// The values that [`DISTURB`] gives; `autocommit` has another one than before in any case.
const DISTURBED: [Option<&str>; 7] = [
    Some("ascii"),
    Some("ascii_general_ci"),
    Some("ascii"),
    Some("NO_UNSIGNED_SUBTRACTION"),
    Some("27182"),
    None,
    Some("-11:11"),
];
/// Far more than they have.
const LIMIT_BYTES: usize = 1 << 14;

/// How a session has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// The database; `None` for none.
    pub(super) database: Option<String>,
    pub(super) settings: Settings,
    /// How clients write.
    pub(super) texts: Texts,
}

/// Whether a byte of a text means the same wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Texts {
    /// Quotes and backslashes are never parts of other characters.
    Plain,
    /// They may be.
    Mixed,
}

impl Texts {
    /// Of a value of `character_set_client`.
    pub fn of(character_set: &str) -> Self {
        const MIXED: [&str; 5] = ["big5", "cp932", "gb18030", "gbk", "sjis"];
        if MIXED.contains(&character_set) { Self::Mixed } else { Self::Plain }
    }
}

impl Beginning {
    /// How clients write that do not change it.
    pub fn texts(&self) -> Texts {
        self.texts
    }

    /// What `COM_RESET_CONNECTION` may give other values than the login has.
    pub fn unsteady() -> impl Iterator<Item = &'static str> {
        SETTINGS.into_iter()
    }
}

/// The settings at the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settings {
    /// They are these, and no reset has shown yet which of them it changes: all are made again.
    AtLogin(Values),
    /// The statement that makes again those that a reset changes; none where it changes none.
    Restored(Option<String>),
}

/// As many as there are [`SETTINGS`]; `None` is NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Values(Vec<Option<String>>);

/// Asks a session that has just begun how it is.
#[derive(Debug)]
pub struct Learning {
    reader: RowsReader,
    database: Option<String>,
}

impl Learning {
    /// Appends the question. The login was in `database`.
    pub fn begin(
        capabilities: Capabilities,
        database: Option<String>,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        ask(capabilities, out)?;
        Ok(Self { reader: reader(capabilities), database })
    }

    /// Takes whole packets from the front of `input`. After [`Error::Server`] the connection awaits the next command,
    /// and nothing was learnt; after any other error it is of no more use.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Beginning>, Error> {
        Ok(match self.reader.step(input)? {
            Response::NeedInput => Response::NeedInput,
            Response::Done(rows) => {
                let values = Values::read(rows)?;
                let texts = values.0.first().and_then(Option::as_deref).map_or(Texts::Plain, Texts::of);
                let database = self.database.take();
                Response::Done(Beginning { database, settings: Settings::AtLogin(values), texts })
            }
        })
    }
}

impl Values {
    /// The one row of the answer.
    pub(super) fn read(rows: Vec<Row>) -> Result<Self, Error> {
        let [row] = <[Row; 1]>::try_from(rows).map_err(|_| unexpected("not one row"))?;
        if row.len() != SETTINGS.len() {
            return Err(unexpected("not as many columns as were asked for"));
        }
        let value = |cell: Option<Vec<u8>>| cell.map(plain).transpose();
        row.into_iter().map(value).collect::<Result<_, _>>().map(Self)
    }

    /// What makes these values again, whatever they are.
    pub(super) fn making(&self) -> String {
        statement(SETTINGS.into_iter().zip(&self.0)).unwrap_or_default()
    }

    /// What makes those of these values again that a reset does not bring back, behind which they were `reset`; none
    /// where it brings all back.
    pub(super) fn restoring(&self, reset: &Self) -> Option<String> {
        let settings = SETTINGS.into_iter().zip(&self.0).zip(&reset.0).zip(DISTURBED);
        // Of those that were so before nobody knows whether they were brought back.
        let is_lost = |own: &Option<String>, reset: &Option<String>, disturbed: Option<&str>| {
            own != reset || (disturbed.is_some() && own.as_deref() == disturbed)
        };
        let lost = settings.filter(|(((_, own), reset), disturbed)| is_lost(own, reset, *disturbed));
        statement(lost.map(|((setting, _), _)| setting))
    }
}

fn statement<'a>(settings: impl Iterator<Item = (&'static str, &'a Option<String>)>) -> Option<String> {
    let settings: Vec<String> = settings
        .map(|(name, value)| match value {
            None => format!("{name}=NULL"),
            // Some settings are numbers and take no text.
            Some(digits) if is_number(digits) => format!("{name}={digits}"),
            Some(text) => format!("{name}='{text}'"),
        })
        .collect();
    (!settings.is_empty()).then(|| format!("SET {}", settings.join(",")))
}

/// Appends the question how the settings are.
pub(super) fn ask(capabilities: Capabilities, out: &mut Vec<u8>) -> Result<(), Error> {
    encode_query_on(capabilities, out, &format!("SELECT @@{}", SETTINGS.join(",@@")))
}

/// What reads the answer.
pub(super) fn reader(capabilities: Capabilities) -> RowsReader {
    RowsReader::new(capabilities, LIMIT_BYTES)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A value that can be written into a statement without escapes: no server has others.
fn plain(value: Vec<u8>) -> Result<String, Error> {
    harmless(value).ok_or_else(|| unexpected("a setting that cannot be written"))
}

/// A text that can be written into a statement without escapes, in any character set.
pub fn harmless(value: Vec<u8>) -> Option<String> {
    let harmless = |byte: u8| (byte == b' ' || byte.is_ascii_graphic()) && !b"'\"\\`".contains(&byte);
    String::from_utf8(value).ok().filter(|text| text.bytes().all(harmless))
}

fn unexpected(reason: &'static str) -> Error {
    Error::Protocol { message: "answer to the proxy", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(changed: &[(usize, Option<&str>)]) -> Values {
        let mut row: Row = ["utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", "28800", "1", "SYSTEM"]
            .into_iter()
            .map(|value| Some(value.as_bytes().to_vec()))
            .collect();
        for (index, value) in changed {
            row[*index] = value.map(|value| value.as_bytes().to_vec());
        }
        Values::read(vec![row]).unwrap()
    }

    #[test]
    fn only_what_a_reset_changes_is_made_again() {
        assert_eq!(values(&[]).restoring(&values(&[])), None);
        let all = "SET character_set_client='utf8mb4',collation_connection='utf8mb4_general_ci',\
                   character_set_results='utf8mb4',sql_mode='',wait_timeout=28800,autocommit=1,\
                   time_zone='SYSTEM'";
        assert_eq!(values(&[]).making(), all);
        let reset = values(&[(1, Some("utf8mb4_0900_ai_ci")), (4, Some("100"))]);
        let statement = values(&[]).restoring(&reset).unwrap();
        assert_eq!(statement, "SET collation_connection='utf8mb4_general_ci',wait_timeout=28800");
        let statement = values(&[(2, None), (3, Some("ANSI,NO_ZERO_DATE"))]).restoring(&values(&[])).unwrap();
        assert_eq!(statement, "SET character_set_results=NULL,sql_mode='ANSI,NO_ZERO_DATE'");
        assert_eq!(values(&[]).restoring(&values(&[(3, Some("ANSI"))])).unwrap(), "SET sql_mode=''");
        // What was so before it was disturbed may not have been brought back.
        let odd = values(&[(6, Some("-11:11"))]);
        assert_eq!(odd.restoring(&odd).unwrap(), "SET time_zone='-11:11'");
    }

    #[test]
    fn nothing_is_written_that_could_be_taken_for_something_else() {
        let row = |value: &[u8]| vec![vec![Some(value.to_vec()); SETTINGS.len()]];
        for value in [&b"a'b"[..], b"a\\", b"\0u\0t\0f", b"\xff", b"a\nb", b"`", b"\""] {
            assert!(Values::read(row(value)).is_err(), "{value:?}");
        }
        assert!(Values::read(row(b"+02:00")).is_ok());
        assert!(Values::read(Vec::new()).is_err());
        assert!(Values::read(vec![vec![None]]).is_err());
    }
}
