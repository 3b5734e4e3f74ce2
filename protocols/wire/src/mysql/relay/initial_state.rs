//! The state of a session right after login, as far as `COM_RESET_CONNECTION` does not restore it: the
//! default database, and settings made by the login (character set, `CLIENT_IGNORE_SPACE`,
//! `CLIENT_INTERACTIVE`, `init_connect`). Servers differ in which of them a reset restores: MariaDB restores
//! a character set that it knows, MySQL none, and neither restores `IGNORE_SPACE`. Therefore the settings are
//! read twice: after the login, and after the first reset, before which all of them are changed.

use crate::{
    mysql::{
        client::rows::MySqlRowsReader,
        codec::{
            capabilities::Capabilities, command::encode_query_on, err::ErrPacket, ok::OkPacket,
            packet::PacketReader,
        },
        error::Error,
        relay::settings::{NAMES, quotable, setting, write_value},
        sql::effects::CHARACTER_SETS,
    },
    response::{Response, Row},
};

/// The settings to read. All exist since MySQL 5.0.
const SETTINGS: [&str; 7] = [
    "character_set_client",
    "collation_connection",
    "character_set_results",
    "sql_mode",
    "wait_timeout",
    "autocommit",
    "time_zone",
];
/// Sets each of them to an unusual value.
pub(crate) const DISTURB: &str = "SET character_set_client=ascii,collation_connection=ascii_general_ci,\
     character_set_results=ascii,sql_mode='NO_UNSIGNED_SUBTRACTION',wait_timeout=27182,\
     autocommit=1-@@autocommit,time_zone='-11:11'";
/// The values that [`DISTURB`] sets; `autocommit` is inverted instead.
const DISTURBED: [Option<&str>; 7] = [
    Some("ascii"),
    Some("ascii_general_ci"),
    Some("ascii"),
    Some("NO_UNSIGNED_SUBTRACTION"),
    Some("27182"),
    None,
    Some("-11:11"),
];
/// Makes the server report changes of the session's state, the first time in the response, as a confirmation. MySQL does
/// not report the setting itself, hence a second one. Servers that do not have the setting refuse it.
pub(crate) const TRACK: &str = "SET session_track_state_change=ON,sql_safe_updates=@@sql_safe_updates";
/// Far more than the settings take.
const LIMIT_BYTES: usize = 1 << 14;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialState {
    /// `None`: no default database.
    pub(crate) database: Option<String>,
    pub(crate) settings: SettingsRestore,
    /// The values after login.
    values: SettingValues,
    /// The client character set.
    pub(crate) text_encoding: TextEncoding,
    pub(crate) tracking: StateTracking,
}

/// Whether the server reports changes of the session's state (`session_track_state_change`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateTracking {
    #[default]
    Off,
    /// It was switched on, and the server has confirmed that by a report.
    On,
}

impl StateTracking {
    /// Reads the response to [`TRACK`]; `None` if it has not arrived.
    pub(crate) fn read(packets: &mut PacketReader, input: &mut &[u8]) -> Result<Option<Self>, Error> {
        let Some(payload) = packets.take(input, "response to the proxy")? else { return Ok(None) };
        if ErrPacket::is(payload) {
            return Ok(Some(Self::Off));
        }
        let ok = OkPacket::parse(payload)?;
        Ok(Some(if ok.session_state_changed() { Self::On } else { Self::Off }))
    }
}

/// Whether the client character set is ASCII-safe, i.e. an ASCII byte never is part of another character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEncoding {
    /// Quotes and backslashes are never part of another character.
    AsciiSafe,
    /// They may be.
    Ambiguous,
}

impl TextEncoding {
    /// The kind of a value of `character_set_client`.
    pub fn of(character_set: &str) -> Self {
        const MIXED: [&str; 5] = ["big5", "cp932", "gb18030", "gbk", "sjis"];
        if MIXED.contains(&character_set) { Self::Ambiguous } else { Self::AsciiSafe }
    }
}

impl InitialState {
    /// The character set of clients that do not change it.
    pub fn text_encoding(&self) -> TextEncoding {
        self.text_encoding
    }

    pub fn tracking(&self) -> StateTracking {
        self.tracking
    }

    /// The value of a setting after login, as a `SET` has it, if it is one of those that were read.
    pub(crate) fn written_value(&self, setting: &str) -> Option<String> {
        let at = SETTINGS.iter().position(|name| *name == setting)?;
        self.values.0.get(at).map(|value| write_value(value.as_deref()))
    }

    /// The settings whose value `COM_RESET_CONNECTION` may change.
    pub fn changed_by_reset() -> impl Iterator<Item = &'static str> {
        SETTINGS.into_iter()
    }
}

/// The settings after login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingsRestore {
    /// These values; no reset has shown yet which of them it changes, so all are set again.
    AtLogin(SettingValues),
    /// The statement that restores the settings changed by a reset; `None` if there are none.
    Restored(Option<String>),
}

/// One value for each of [`SETTINGS`]; `None` is NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingValues(Vec<Option<String>>);

/// Reads the state of a session right after login.
#[derive(Debug)]
pub struct InitialStateQuery {
    reader: MySqlRowsReader,
    database: Option<String>,
    tracking: StateTracking,
    /// What was read or refused, while the response to [`TRACK`] is awaited.
    outcome: Option<Result<InitialState, Error>>,
    packets: PacketReader,
}

impl InitialStateQuery {
    /// Appends the query. `database` is the default database of the login; `tracking`, whether changes of the state are
    /// to be reported from then on.
    pub fn begin(
        capabilities: Capabilities,
        database: Option<String>,
        tracking: StateTracking,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        encode_query_settings(capabilities, out)?;
        if tracking == StateTracking::On {
            encode_query_on(capabilities, out, TRACK)?;
        }
        let (reader, packets) = (reader(capabilities), PacketReader::for_response());
        Ok(Self { reader, database, tracking, outcome: None, packets })
    }

    /// The status flags behind the values, which may differ from those of the login: `init_connect` was executed.
    pub fn status(&self) -> u16 {
        self.reader.status()
    }

    /// Takes whole packets from the front of `input`. After [`Error::Server`] the connection awaits the next
    /// command and nothing was learned. After any other error the connection is unusable.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<InitialState>, Error> {
        let mut outcome = match self.outcome.take() {
            Some(outcome) => outcome,
            None => match self.reader.step(input) {
                Ok(Response::NeedInput) => return Ok(Response::NeedInput),
                Ok(Response::Done(rows)) => Ok(self.read(rows)?),
                Err(refusal @ Error::Server { .. }) => Err(refusal),
                Err(error) => return Err(error),
            },
        };
        if self.tracking == StateTracking::On {
            let Some(tracking) = StateTracking::read(&mut self.packets, input)? else {
                self.outcome = Some(outcome);
                return Ok(Response::NeedInput);
            };
            outcome = outcome.map(|state| InitialState { tracking, ..state });
        }
        outcome.map(Response::Done)
    }

    fn read(&mut self, rows: Vec<Row>) -> Result<InitialState, Error> {
        let values = SettingValues::read(rows)?;
        let character_set = values.0.first().and_then(Option::as_deref);
        let text_encoding = character_set.map_or(TextEncoding::AsciiSafe, TextEncoding::of);
        Ok(InitialState {
            database: self.database.take(),
            settings: SettingsRestore::AtLogin(values.clone()),
            values,
            text_encoding,
            tracking: StateTracking::Off,
        })
    }
}

impl SettingValues {
    /// Reads the single row of the response.
    pub(crate) fn read(rows: Vec<Row>) -> Result<Self, Error> {
        let [row] = <[Row; 1]>::try_from(rows).map_err(|_| unexpected("not one row"))?;
        if row.len() != SETTINGS.len() {
            return Err(unexpected("not as many columns as were asked for"));
        }
        let value = |cell: Option<Vec<u8>>| cell.map(parse_value).transpose();
        row.into_iter().map(value).collect::<Result<_, _>>().map(Self)
    }

    /// The statement that sets all of these values.
    pub(crate) fn set_statement(&self) -> String {
        let values = self.0.iter().map(Option::as_deref);
        setting(self.names().chain(SETTINGS.into_iter().zip(values))).unwrap_or_default()
    }

    /// The login is like a `SET NAMES`.
    fn names(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        std::iter::once((NAMES, self.0[1].as_deref()))
    }

    /// The statement that restores the values that a reset changes, given the values after a `reset`; `None`
    /// if there are none.
    pub(crate) fn restore_statement(&self, reset: &Self) -> Option<String> {
        // A value that equals the disturbed one may or may not have been restored by the reset.
        let is_lost = |at: usize| {
            let own = self.0[at].as_deref();
            own != reset.0[at].as_deref() || own.is_some() && own == DISTURBED[at]
        };
        let of_character_set = |at: usize| CHARACTER_SETS.contains(&SETTINGS[at]);
        let all = 0..SETTINGS.len();
        let loses_character_set = all.clone().any(|at| of_character_set(at) && is_lost(at));
        let lost = all.filter(|at| is_lost(*at) || loses_character_set && of_character_set(*at));
        setting(self.names().chain(lost.map(|at| (SETTINGS[at], self.0[at].as_deref()))))
    }
}

/// Appends the query for the settings.
pub(crate) fn encode_query_settings(capabilities: Capabilities, out: &mut Vec<u8>) -> Result<(), Error> {
    encode_query_on(capabilities, out, &format!("SELECT @@{}", SETTINGS.join(",@@")))
}

/// The reader of its response.
pub(crate) fn reader(capabilities: Capabilities) -> MySqlRowsReader {
    MySqlRowsReader::new(capabilities, LIMIT_BYTES)
}

/// A value that can be quoted without escapes. No server has others.
fn parse_value(value: Vec<u8>) -> Result<String, Error> {
    quotable(value).ok_or_else(|| unexpected("a setting that cannot be written"))
}

fn unexpected(reason: &'static str) -> Error {
    Error::protocol("response to the proxy", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(changed: &[(usize, Option<&str>)]) -> SettingValues {
        let mut row: Row = ["utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", "28800", "1", "SYSTEM"]
            .into_iter()
            .map(|value| Some(value.as_bytes().to_vec()))
            .collect();
        for (index, value) in changed {
            row[*index] = value.map(|value| value.as_bytes().to_vec());
        }
        SettingValues::read(vec![row]).unwrap()
    }

    #[test]
    fn only_settings_that_a_reset_changes_are_restored() {
        assert_eq!(values(&[]).restore_statement(&values(&[])), None);
        let all = "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci',sql_mode='',wait_timeout=28800,\
                   autocommit=1,time_zone='SYSTEM'";
        assert_eq!(values(&[]).set_statement(), all);
        let reset = values(&[(1, Some("utf8mb4_0900_ai_ci")), (4, Some("100"))]);
        let statement = values(&[]).restore_statement(&reset).unwrap();
        assert_eq!(statement, "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci',wait_timeout=28800");
        let statement =
            values(&[(2, None), (3, Some("ANSI,NO_ZERO_DATE"))]).restore_statement(&values(&[])).unwrap();
        assert_eq!(
            statement,
            "SET character_set_client='utf8mb4',collation_connection='utf8mb4_general_ci',\
             character_set_results=NULL,sql_mode='ANSI,NO_ZERO_DATE'"
        );
        assert_eq!(values(&[]).restore_statement(&values(&[(3, Some("ANSI"))])).unwrap(), "SET sql_mode=''");
        // A value that equals the disturbed one may not have been restored.
        let odd = values(&[(6, Some("-11:11"))]);
        assert_eq!(odd.restore_statement(&odd).unwrap(), "SET time_zone='-11:11'");
    }

    #[test]
    fn values_that_need_escapes_are_refused() {
        let row = |value: &[u8]| vec![vec![Some(value.to_vec()); SETTINGS.len()]];
        for value in [&b"a'b"[..], b"a\\", b"\0u\0t\0f", b"\xff", b"a\nb", b"`", b"\""] {
            assert!(SettingValues::read(row(value)).is_err(), "{value:?}");
        }
        assert!(SettingValues::read(row(b"+02:00")).is_ok());
        assert!(SettingValues::read(Vec::new()).is_err());
        assert!(SettingValues::read(vec![vec![None]]).is_err());
    }
}
