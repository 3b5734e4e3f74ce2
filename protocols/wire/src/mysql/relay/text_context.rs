//! What the text of a prepared statement means besides its words: settings and the default database. Servers read the
//! text once and keep its meaning when these change. When a statement is prepared again on another connection, they are
//! the same as at first.

use std::sync::Arc;

use crate::mysql::relay::{initial_state::InitialState, settings::write_value};

/// Settings with which no statement is prepared differently. They also cannot be changed at any time: a change of
/// `autocommit` may end the transaction.
const OF_EXECUTION: [&str; 11] = [
    "autocommit",
    "character_set_results",
    "foreign_key_checks",
    "transaction_isolation",
    "transaction_read_only",
    "tx_isolation",
    "tx_read_only",
    "unique_checks",
    "long_query_time",
    "max_join_size",
    "sql_big_selects",
];
const TIMEOUT: &str = "_timeout";
/// About the memory that a setting takes.
const SETTING_BYTES: usize = 96;

/// The settings and the default database with which texts are read. `Default` is the initial state of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextContext {
    /// Names and values; `None` is NULL. Settings that were never changed are absent.
    settings: Vec<(String, Option<String>)>,
    /// `None`: that of the login.
    database: Option<String>,
}

/// How a session takes the context of a statement, and its own again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextSwitch {
    /// Each is the statement and the database to choose before and after.
    pub before: (Option<String>, Option<String>),
    pub after: (Option<String>, Option<String>),
}

/// A session cannot take a context: no command unsets its default database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDatabase;

impl TextContext {
    /// Whether a setting can change how texts are read.
    pub fn has(setting: &str) -> bool {
        !OF_EXECUTION.contains(&setting) && !setting.ends_with(TIMEOUT)
    }

    pub fn set(context: &mut Arc<Self>, setting: &str, value: Option<String>) {
        if !Self::has(setting) {
            return;
        }
        let known = context.settings.iter().position(|(name, _)| name == setting);
        match known {
            Some(at) if context.settings[at].1 == value => {}
            Some(at) => Arc::make_mut(context).settings[at].1 = value,
            None => Arc::make_mut(context).settings.push((setting.to_owned(), value)),
        }
    }

    pub fn choose_database(context: &mut Arc<Self>, database: Option<String>) {
        if context.database != database {
            Arc::make_mut(context).database = database;
        }
    }

    pub(crate) fn is_in_database_of_login(&self) -> bool {
        self.database.is_none()
    }

    /// `COM_RESET_CONNECTION` leaves the default database.
    pub fn reset_settings(context: &mut Arc<Self>) {
        if !context.settings.is_empty() {
            Arc::make_mut(context).settings.clear();
        }
    }

    /// What a session with this context does to prepare a statement in `other`. `of_login` is the database of the
    /// login.
    pub fn switch_to(
        &self,
        other: &Self,
        initial_state: Option<&InitialState>,
        of_login: Option<&str>,
    ) -> Result<ContextSwitch, NoDatabase> {
        let (own, others) = (self.database.as_deref().or(of_login), other.database.as_deref().or(of_login));
        let (before, after) = match (own, others) {
            _ if own == others => (None, None),
            (Some(own), Some(others)) => (Some(others.to_owned()), Some(own.to_owned())),
            _ => return Err(NoDatabase),
        };
        let names = self.names().chain(other.names().filter(|name| self.value(name).is_none()));
        let changed: Vec<_> = names
            .map(|name| (name, self.effective(name, initial_state), other.effective(name, initial_state)))
            .filter(|(_, own, others)| own != others)
            .collect();
        Ok(ContextSwitch {
            before: (set(changed.iter().map(|(name, _, others)| (*name, others))), before),
            after: (set(changed.iter().map(|(name, own, _)| (*name, own))), after),
        })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.iter().map(|(name, _)| name.as_str())
    }

    /// The value of a setting that was changed, as a `SET` has it.
    fn value(&self, setting: &str) -> Option<String> {
        let (_, value) = self.settings.iter().find(|(name, _)| name == setting)?;
        Some(write_value(value.as_deref()))
    }

    fn effective(&self, setting: &str, initial_state: Option<&InitialState>) -> String {
        self.value(setting)
            .or_else(|| initial_state?.written_value(setting))
            // The value of a new session.
            .unwrap_or_else(|| "DEFAULT".to_owned())
    }

    /// The memory that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.settings.len() * SETTING_BYTES
    }
}

fn set<'a>(values: impl Iterator<Item = (&'a str, &'a String)>) -> Option<String> {
    let written: Vec<String> = values.map(|(name, value)| format!("{name}={value}")).collect();
    (!written.is_empty()).then(|| format!("SET {}", written.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(settings: &[(&str, &str)], database: Option<&str>) -> Arc<TextContext> {
        let mut context = Arc::default();
        for (name, value) in settings {
            TextContext::set(&mut context, name, Some((*value).to_owned()));
        }
        TextContext::choose_database(&mut context, database.map(ToOwned::to_owned));
        context
    }

    fn switch(from: &TextContext, to: &TextContext, of_login: Option<&str>) -> ContextSwitch {
        from.switch_to(to, None, of_login).unwrap()
    }

    fn parts(settings: Option<&str>, database: Option<&str>) -> (Option<String>, Option<String>) {
        (settings.map(ToOwned::to_owned), database.map(ToOwned::to_owned))
    }

    #[test]
    fn only_what_differs_is_switched_and_switched_back() {
        let first = context(&[("sql_mode", ""), ("max_sort_length", "8")], None);
        let now =
            context(&[("sql_mode", "ANSI"), ("max_sort_length", "8"), ("time_zone", "+01:00")], Some("b"));
        let expected = ContextSwitch {
            before: parts(Some("SET sql_mode='',time_zone=DEFAULT"), Some("a")),
            after: parts(Some("SET sql_mode='ANSI',time_zone='+01:00'"), Some("b")),
        };
        assert_eq!(switch(&now, &first, Some("a")), expected);
        assert_eq!(switch(&now, &now, Some("a")), ContextSwitch::default());
        // The database of the login was chosen again.
        assert_eq!(
            switch(&context(&[], Some("a")), &context(&[], None), Some("a")),
            ContextSwitch::default()
        );
        assert_eq!(now.switch_to(&first, None, None), Err(NoDatabase));
    }

    #[test]
    fn settings_of_the_execution_are_left_alone() {
        let mut now =
            context(&[("autocommit", "0"), ("tx_isolation", "SERIALIZABLE"), ("wait_timeout", "5")], None);
        assert_eq!(*now, TextContext::default());
        TextContext::set(&mut now, "sql_mode", None);
        let before = Arc::clone(&now);
        TextContext::set(&mut now, "sql_mode", None);
        assert!(Arc::ptr_eq(&before, &now), "an equal value copies nothing");
        TextContext::reset_settings(&mut now);
        assert_eq!((now.bytes(), before.bytes() > 0), (0, true));
    }
}
