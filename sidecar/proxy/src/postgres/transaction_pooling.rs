//! What a client takes along from connection to connection in transaction pooling, and why it keeps one.

use ciphertoll_wire::postgres::Error;
use ciphertoll_wire::postgres::relay::{ConnectionStatements, Followed, SessionFollower};
use ciphertoll_wire::postgres::sql::{Discard, Effects, ReadingChange, SetConfig};

use super::backend_state::{BackendState, is_fixed};
use super::startup_request::{StartupRequest, limits_commands};
use crate::protocol::{AcquiredState, PinState};

/// The part of a session that only transaction pooling has.
#[derive(Debug)]
pub(super) struct TransactionPooling {
    pub(super) request: Box<StartupRequest>,
    pub(super) acquired: AcquiredState,
    pub(super) follower: SessionFollower,
    pub(super) pin: PinState,
    /// Settings that may have changed and that the server does not report.
    pub(super) unreported: Vec<Vec<u8>>,
    /// Why the connection must be closed when the client leaves.
    pub(super) ends_with_client: Option<&'static str>,
    /// How often the server has refused to tell their values.
    failed_queries: u32,
    /// The version of the reported settings that was recorded, by the count of their changes.
    pub(super) changes: u64,
    pub(super) was_reported: bool,
    /// Whether this session has undone settings of the login by a `DISCARD ALL`.
    pub(super) lacks_login_settings: bool,
}

impl TransactionPooling {
    pub(super) fn new(request: Box<StartupRequest>, acquired: AcquiredState, backend: &BackendState) -> Self {
        Self {
            ends_with_client: request.ends_with_client(),
            request,
            acquired,
            follower: SessionFollower::default(),
            pin: PinState::None,
            unreported: Vec::new(),
            failed_queries: 0,
            changes: backend.parameters.changes(),
            was_reported: false,
            lacks_login_settings: false,
        }
    }

    pub(super) fn followed<'a>(&'a mut self, prepared: &'a mut ConnectionStatements) -> Followed<'a> {
        Followed { follower: &mut self.follower, statements: &mut self.request.statements, prepared }
    }

    pub(super) fn record_effects(&mut self, effects: Effects, backend: &BackendState) {
        if effects.discard == Discard::All {
            self.unreported = self.request.clear_settings();
            self.pin = PinState::None;
            self.record_discard(&effects.settings, backend);
        }
        if let Some(reason) = effects.pin {
            self.pin.set(reason);
        }
        let is_known = self.pin == PinState::None && effects.calls_set_config == SetConfig::No;
        if !is_known && effects.may_define_custom() {
            self.ends_with_client = Some(CUSTOM_SETTING);
        }
        // What is set for a transaction does not change what the session has.
        let is_unknown =
            |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| self.request.value(name).is_none());
        let custom = effects.local_custom.into_iter().filter(|name| is_unknown(name));
        let reported = |name: &[u8]| backend.parameters.get(name).is_some();
        let changed = effects.settings.into_iter().filter(|name| !reported(name));
        self.unreported.extend(changed.chain(custom));
        if self.request.may_need_role(&self.unreported) {
            self.pin.set("a setting of another role");
        }
    }

    /// On this connection, a `DISCARD ALL` has undone the settings of the login. They are set again in front of the next
    /// transaction, unless the client has set them since.
    fn record_discard(&mut self, set_since: &[Vec<u8>], backend: &BackendState) {
        for name in set_since {
            if let Some(value) = backend.parameters.get(name)
                && self.request.record_setting(name, value).is_err()
            {
                self.pin.set(NOT_PORTABLE);
            }
        }
        self.lacks_login_settings = !self.request.differing(&backend.parameters).is_empty();
    }

    pub(super) fn record_reported(&mut self, backend: &BackendState) {
        self.changes = backend.parameters.changes();
        self.was_reported = true;
        for (name, value) in backend.parameters.iter() {
            let desired = std::str::from_utf8(name).ok().and_then(|name| self.request.value(name));
            let desired = desired.map(str::as_bytes).or_else(|| backend.base.get(name));
            let was_discarded = self.lacks_login_settings && backend.base.get(name) == Some(value);
            if is_fixed(name) || desired == Some(value) || was_discarded {
                continue;
            }
            if self.request.record_setting(name, value).is_err() {
                self.pin.set(NOT_PORTABLE);
            }
        }
    }

    /// Whether a time limit of the session may cancel a reset, as far as its settings are known.
    pub(super) fn may_have_short_timeout(&self) -> bool {
        self.pin != PinState::None
            || self.unreported.iter().any(|name| limits_commands(name))
            || self.request.has_short_timeout()
    }

    /// A setting that the server does not report has changed: prepared statements keep the meaning that they were prepared
    /// with.
    fn check_statements(&mut self, setting: &[u8], prepared: &ConnectionStatements) {
        let statements = &mut self.request.statements;
        let change = ReadingChange::of_setting(setting);
        if statements.depend_on(change) {
            statements.forget_dependent(change, prepared);
            self.pin.set("a setting on which the meaning of its prepared statements depends");
        }
    }

    /// The settings stay unknown: they are queried again, or the client keeps its connection.
    pub(super) fn record_failed_query(&mut self, error: &Error) {
        self.failed_queries += 1;
        // The client's timeout, or a cancel request.
        let is_cancelled = matches!(error, Error::Server { sqlstate, .. } if sqlstate == "57014");
        if !is_cancelled || self.failed_queries == MAX_QUERIES {
            self.pin.set(NOT_READABLE);
        }
    }

    pub(super) fn record_values(&mut self, values: Vec<Option<Vec<u8>>>, prepared: &ConnectionStatements) {
        self.failed_queries = 0;
        for (name, value) in std::mem::take(&mut self.unreported).iter().zip(values) {
            let Some(value) = value else { continue };
            let before = std::str::from_utf8(name).ok().and_then(|name| self.request.value(name));
            let is_new = before.map(str::as_bytes) != Some(&value);
            if is_new && may_be_rounded(name, &value) {
                self.pin.set(ROUNDED);
            }
            if self.request.record_setting(name, &value).is_err() {
                self.pin.set(NOT_PORTABLE);
            }
            if is_new {
                self.check_statements(name, prepared);
            }
        }
    }
}

pub(super) const CUSTOM_SETTING: &str = "a custom setting";
const ROUNDED: &str = "a setting whose value the server rounds";
const NOT_PORTABLE: &str = "a setting that cannot be set on another connection";
pub(super) const NOT_READABLE: &str = "a setting whose value the server does not tell";
/// How often the values of settings are queried while the query is cancelled.
pub(super) const MAX_QUERIES: u32 = 3;

/// Significant digits with which PostgreSQL shows real numbers.
const SHOWN_DIGITS: usize = 6;

/// Whether a value may be a real number with more digits than the server shows. Numbers in settings of applications are texts.
fn may_be_rounded(name: &[u8], value: &[u8]) -> bool {
    let Some(value) = std::str::from_utf8(value).ok().filter(|value| value.parse::<f64>().is_ok()) else {
        return false;
    };
    let mantissa = value.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).skip_while(|digit| *digit == b'0');
    let is_whole = !value.contains(['.', 'e', 'E']);
    digits.count() == SHOWN_DIGITS && !(is_whole && name.contains(&b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_as_many_digits_as_the_server_shows_may_be_rounded() {
        for value in ["1.23457e+08", "0.00123457", "1.23457", "-1.23457e-05", "123457"] {
            assert!(may_be_rounded(b"seq_page_cost", value.as_bytes()), "{value}");
        }
        for value in ["1.1", "0", "1e+10", "12345", "1234567", "90min", "1.2345678", "nan", "", "\u{e9}"] {
            assert!(!may_be_rounded(b"seq_page_cost", value.as_bytes()), "{value}");
        }
        assert!(!may_be_rounded(b"app.tenant", b"123456"));
        assert!(may_be_rounded(b"pg_trgm.similarity_threshold", b"0.123457"));
    }
}
