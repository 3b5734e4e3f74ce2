//! Which effects of a command outlive its transaction, as far as its text shows: settings, prepared
//! statements, and state that is bound to the connection.
//!
//! This scans tokens; it does not parse SQL. A false positive pins a client to its connection. Effects of
//! functions are not seen. It must not be relied on to isolate clients.

mod scanner;

use crate::postgres::codec::text_rules::StringSyntax;
use crate::postgres::sql::{lexer::MAX_TOKEN_BYTES, relative_times::has_relative_time};

pub(crate) use scanner::ArrivingText;
pub use scanner::TextReader;

/// Settings changed in one transaction; more pin the connection.
const MAX_SETTINGS: usize = 16;
/// Limit of prepared statements that a text names; more pin the connection.
const MAX_NAMED: usize = 256;
/// Servers truncate longer names.
pub(crate) const MAX_NAME_BYTES: usize = 63;
/// Settings of the current transaction, however they are set.
const OF_TRANSACTIONS: [&[u8]; 3] =
    [b"transaction_isolation", b"transaction_read_only", b"transaction_deferrable"];

/// Settings on which the values of constants depend, which a server reads when it prepares a statement. It reports these.
pub(crate) const REPORTED_OF_CONSTANTS: [&str; 5] =
    ["DateStyle", "IntervalStyle", "TimeZone", "client_encoding", "standard_conforming_strings"];
/// The same, but it does not report them.
const UNREPORTED_OF_CONSTANTS: [&str; 5] =
    ["timezone_abbreviations", "lc_monetary", "lc_numeric", "xmloption", "array_nulls"];
/// Settings on which the meaning of any text depends.
const OF_TEXTS: [&str; 2] = ["backslash_quote", "transform_null_equals"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Settings whose values may have changed, in the order in which they were last set.
    pub settings: Vec<Vec<u8>>,
    /// Why the connection is pinned: state that no other connection can have.
    pub pin: Option<&'static str>,
    /// What the text deallocates, in order. Each of them takes effect when the server confirms it.
    pub deallocations: Vec<Deallocation>,
    /// The prepared statements that the text names, other than by the protocol.
    pub named: NamedStatements,
    /// Settings with a dot in their name that the text sets for its transaction only. They exist ever after.
    pub local_custom: Vec<Vec<u8>>,
    /// Whether the text has a `DISCARD ALL`.
    pub discard: Discard,
    /// Whether a function or a definition sets a setting whose name is not known, or has a dot.
    pub calls_set_config: SetConfig,
    pub constants: Constants,
    pub reading: ReadingChange,
    /// Of the first statement.
    pub verb: StatementVerb,
    pub remains: Remains,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetConfig {
    #[default]
    No,
    MayDefineCustom,
}

/// What may be read in another way after a text, also for the rest of its transaction only. Effects of functions are not
/// seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ReadingChange {
    #[default]
    None,
    /// Constants, by settings that the server reports.
    Reported,
    /// Constants, by any setting.
    Constants,
    /// All texts.
    Texts,
}

impl ReadingChange {
    /// By a change of this setting.
    pub fn of_setting(name: &[u8]) -> Self {
        let is_of = |all: &[&str]| all.iter().any(|of| name.eq_ignore_ascii_case(of.as_bytes()));
        match () {
            () if is_of(&OF_TEXTS) => Self::Texts,
            () if is_of(&UNREPORTED_OF_CONSTANTS) => Self::Constants,
            () if is_of(&REPORTED_OF_CONSTANTS) => Self::Reported,
            () => Self::None,
        }
    }

    /// Whether what has changed is known only from texts.
    pub fn is_unreported(self) -> bool {
        self >= Self::Constants
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatementVerb {
    #[default]
    Other,
    /// `SELECT`, `VALUES`, `TABLE`.
    Query,
    /// `INSERT`, `UPDATE`, `DELETE`, `MERGE`, `WITH`.
    Write,
    /// `FETCH`: its columns are those of a cursor.
    Fetch,
}

/// Prepared statements that were deallocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deallocation {
    Named(Vec<u8>),
    All,
}

/// Prepared statements that SQL names, which the server must know before it executes the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedStatements {
    These(Vec<(NameUse, Vec<u8>)>),
    /// Any: the names are too many, or cannot be read.
    Any,
}

/// What SQL does with a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameUse {
    /// It matters only whether it exists.
    Mentions,
    Executes,
}

/// The constants in a text. Servers read them when the text is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Constants {
    #[default]
    None,
    /// Some, whose values may depend on settings.
    OfSettings,
    /// The values of some may depend on the time, as that of `'now'`.
    OfTheTime,
}

impl Default for NamedStatements {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

impl NamedStatements {
    /// Whether the text executes another statement.
    pub(crate) fn executes_any(&self) -> bool {
        match self {
            Self::These(names) => names.iter().any(|(name_use, _)| *name_use == NameUse::Executes),
            Self::Any => true,
        }
    }

    /// Whether the text may name this statement.
    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        match self {
            Self::These(names) => names.iter().any(|(_, own)| own == name),
            Self::Any => true,
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::These(names) if names.is_empty())
    }
}

/// What a session may leave behind for the next client of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Remains {
    /// The words of all texts are plain data access and transaction control.
    #[default]
    Nothing,
    /// Only the statement without a name, which a `Close` removes.
    UnnamedStatement,
    /// Anything: a reset is needed.
    Anything,
}

/// What a client has discarded of its session state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discard {
    #[default]
    None,
    /// Only how the server has understood its prepared statements.
    Plans,
    All,
}

impl Effects {
    /// Whether no effect is known that later texts depend on, whatever [`Self::remains`].
    pub fn is_none(&self) -> bool {
        let Self { settings, pin, deallocations, local_custom, discard, reading, .. } = self;
        settings.is_empty()
            && pin.is_none()
            && deallocations.is_empty()
            && local_custom.is_empty()
            && *discard == Discard::None
            && *reading == ReadingChange::None
    }

    /// Whether settings may exist after it that did not before. They exist until the session ends.
    pub fn may_define_custom(&self) -> bool {
        self.calls_set_config == SetConfig::MayDefineCustom
            || !self.local_custom.is_empty()
            || self.settings.iter().any(|name| name.contains(&b'.'))
    }

    /// What may be read in another way after it.
    pub(crate) fn reading(&self) -> ReadingChange {
        match self.discard {
            Discard::None | Discard::Plans => self.reading,
            Discard::All => self.reading.max(ReadingChange::Constants),
        }
    }

    /// The same, for longer than its transaction. What has a pin may set more than is seen.
    pub(crate) fn lasting_reading(&self) -> ReadingChange {
        if self.pin.is_some() {
            return self.reading;
        }
        self.settings.iter().map(|name| ReadingChange::of_setting(name)).max().unwrap_or_default()
    }

    /// Adds the settings and the pin of another command. What it deallocates and discards depends on its success.
    pub fn merge(&mut self, other: &Self) {
        for name in &other.settings {
            self.sets(name);
        }
        for name in &other.local_custom {
            self.sets_local_custom(name);
        }
        self.pin = self.pin.or(other.pin);
        self.reading = self.reading.max(other.reading);
        if other.calls_set_config == SetConfig::MayDefineCustom {
            self.calls_set_config = SetConfig::MayDefineCustom;
        }
    }

    /// What a `DISCARD ALL` leaves of it: the custom settings exist until the session ends.
    pub(crate) fn discarded(self) -> Self {
        let Self { mut settings, local_custom, calls_set_config, .. } = self;
        settings.retain(|name| name.contains(&b'.'));
        Self { settings, local_custom, calls_set_config, discard: Discard::All, ..Self::default() }
    }

    /// Without a command that has failed before it has done anything that outlives it. A custom setting may exist ever after.
    pub(crate) fn sets_nothing(&mut self) {
        self.settings.retain(|name| name.contains(&b'.'));
    }

    /// Adds everything that a prepared statement does which this text executes.
    pub(crate) fn execute(&mut self, statement: &Self) {
        self.merge(statement);
        if statement.discard == Discard::Plans {
            self.discard = Discard::Plans;
        }
        if !self.deallocations.is_empty() && !statement.deallocations.is_empty() {
            self.pins("several statements that deallocate");
        }
        self.deallocations.extend(statement.deallocations.iter().cloned());
    }

    /// A setting with a dot in its name is set for the transaction.
    fn sets_local_custom(&mut self, name: &[u8]) {
        if self.local_custom.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return;
        }
        if is_unknown_to_server(name) {
            self.pins("a setting with a long name");
        } else if self.local_custom.len() < MAX_SETTINGS {
            self.local_custom.push(name.to_vec());
        } else {
            self.pins("many settings");
        }
    }

    fn sets(&mut self, name: &[u8]) {
        self.changes_reading(ReadingChange::of_setting(name));
        if let Some(at) = self.settings.iter().position(|known| known.eq_ignore_ascii_case(name)) {
            // They are set again in this order.
            let last = self.settings.remove(at);
            return self.settings.push(last);
        }
        if OF_TRANSACTIONS.iter().any(|of| name.eq_ignore_ascii_case(of)) {
            return;
        }
        if name.eq_ignore_ascii_case(StringSyntax::SETTING) {
            // So rare that it is not worth a second way to read texts.
            self.pins("standard_conforming_strings");
        }
        if is_unknown_to_server(name) {
            self.pins("a setting with a long name");
        } else if self.settings.len() < MAX_SETTINGS {
            self.settings.push(name.to_vec());
        } else {
            self.pins("many settings");
        }
    }

    fn pins(&mut self, what: &'static str) {
        self.pin.get_or_insert(what);
    }

    fn changes_reading(&mut self, change: ReadingChange) {
        self.reading = self.reading.max(change);
    }

    /// The text names a prepared statement.
    fn names(&mut self, name_use: NameUse, name: &[u8]) {
        match &mut self.named {
            NamedStatements::These(names) if names.len() < MAX_NAMED && name.len() < MAX_TOKEN_BYTES => {
                names.push((name_use, name[..name.len().min(MAX_NAME_BYTES)].to_vec()));
            }
            NamedStatements::These(_) => {
                self.named = NamedStatements::Any;
                // A pinned client needs no statement prepared again.
                self.pins("many prepared statements named at once");
            }
            NamedStatements::Any => {}
        }
    }

    fn deallocate(&mut self, name: &[u8]) {
        self.names(NameUse::Mentions, name);
        if self.named != NamedStatements::Any {
            self.deallocations.push(Deallocation::Named(name[..name.len().min(MAX_NAME_BYTES)].to_vec()));
        }
    }

    fn deallocate_all(&mut self) {
        if self.deallocations.last() != Some(&Deallocation::All) {
            self.deallocations.push(Deallocation::All);
        }
    }

    fn has_constant(&mut self, text: Option<&[u8]>) {
        let constants = match text {
            Some(text) if has_relative_time(text) => Constants::OfTheTime,
            Some(text) if !depends_on_settings(text) => return,
            Some(_) => Constants::OfSettings,
            None => Constants::OfTheTime,
        };
        self.constants = self.constants.max(constants);
    }
}

/// Whether the server may know a setting by another name: by a part of this one.
fn is_unknown_to_server(name: &[u8]) -> bool {
    name.len() >= MAX_TOKEN_BYTES || name.len() > MAX_NAME_BYTES && !name.is_ascii()
}

/// Whether the value of a string may depend on settings, whatever its type: dates, times and amounts have digits,
/// arrays braces, most documents `<`. `allballs` is midnight in the session's time zone.
fn depends_on_settings(text: &[u8]) -> bool {
    let matters = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'{' | b'<' | 0x80..);
    text.iter().any(matters) || text.trim_ascii().eq_ignore_ascii_case(b"allballs")
}

#[cfg(test)]
mod tests;
