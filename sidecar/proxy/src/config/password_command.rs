//! `password-command` of a user: checks and substitutions.

use std::sync::Arc;
use std::time::Duration;

use ciphertoll_net::tls::Verification;

use super::error::{CommandSettingError, ConfigError};
use super::sections::UserSection;
use crate::credentials::{AnyUserPasswords, CommandTemplate, WordPart};
use crate::duration::HumanDuration;
use crate::group_limits::ANY_USER;
use crate::settings::{Settings, UnknownUsers};
use crate::url::{ServerAddress, ServerUrl, UpstreamEncryption};

const DEFAULT_TIME: Duration = Duration::from_secs(10);
const LONGEST_TIME: Duration = Duration::from_mins(1);
/// Passwords are replaced at 80 % of their life, and what is due is looked at several times per second.
const SHORTEST_LIFE: Duration = Duration::from_secs(2);

impl UserSection {
    /// The command that prints this user's password; `None` if it has another source.
    pub(super) fn command(
        &self,
        server: &ServerUrl,
        hidden: &[String],
        max_scram_iterations: u32,
    ) -> Result<Option<CommandTemplate>, ConfigError> {
        let wrong = |reason| ConfigError::Command { user: self.name.clone(), reason };
        if self.password_command.is_empty() {
            return match (self.password_lifetime, self.password_command_time) {
                (Some(_), _) => Err(wrong(CommandSettingError::WithoutCommand("password-lifetime"))),
                (_, Some(_)) => Err(wrong(CommandSettingError::WithoutCommand("password-command-time"))),
                (None, None) => Ok(None),
            };
        }
        if self.password_file.is_some() || self.password_env.is_some() {
            return Err(ConfigError::SeveralPasswords(self.name.clone()));
        }
        let program = self.password_command.first().map(String::as_str).unwrap_or_default();
        if program.is_empty() || program.contains('/') && !program.starts_with('/') || program.contains("%u")
        {
            return Err(wrong(CommandSettingError::Program));
        }
        let time_limit = self.password_command_time.map_or(DEFAULT_TIME, HumanDuration::duration);
        if !(Duration::from_millis(100)..=LONGEST_TIME).contains(&time_limit) {
            return Err(wrong(CommandSettingError::Time(time_limit.into())));
        }
        let lifetime = self.password_lifetime.map(HumanDuration::duration);
        if let Some(short) = lifetime.filter(|life| *life < SHORTEST_LIFE) {
            return Err(wrong(CommandSettingError::Lifetime(short.into())));
        }
        if matches!(server.encryption, UpstreamEncryption::Tls { verification: Verification::Off, .. }) {
            return Err(wrong(CommandSettingError::Unverified));
        }
        let words = self.password_command.iter().map(|word| self.substituted(word, server));
        Ok(Some(CommandTemplate {
            words: words.collect::<Result<_, _>>().map_err(wrong)?,
            lifetime,
            time_limit,
            hidden: hidden.to_vec(),
            max_scram_iterations,
        }))
    }

    /// The passwords of users whom the settings do not name, if this is the section of [`ANY_USER`].
    pub(super) fn any_user(
        &self,
        server: &ServerUrl,
        hidden: &[String],
        max_scram_iterations: u32,
    ) -> Result<Arc<AnyUserPasswords>, ConfigError> {
        let command = self.command(server, hidden, max_scram_iterations)?.ok_or(ConfigError::AnyUser)?;
        if !command.names_user() {
            return Err(ConfigError::Command {
                user: self.name.clone(),
                reason: CommandSettingError::WithoutUser,
            });
        }
        if self.min_pool_size.is_some() {
            return Err(ConfigError::AnyUserInAdvance);
        }
        Ok(Arc::new(AnyUserPasswords::new(command, self.database_at(server))))
    }

    fn substituted(&self, word: &str, server: &ServerUrl) -> Result<Vec<WordPart>, CommandSettingError> {
        if word.contains('\0') {
            return Err(CommandSettingError::Nul);
        }
        let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), word.chars());
        while let Some(next) = rest.next() {
            if next != '%' {
                text.push(next);
                continue;
            }
            match (rest.next(), &server.address) {
                (Some('%'), _) => text.push('%'),
                (Some('u'), _) => {
                    parts.push(WordPart::Text(std::mem::take(&mut text)));
                    parts.push(WordPart::User);
                }
                (Some('h' | 'p'), _) if !server.further.is_empty() => {
                    return Err(CommandSettingError::SeveralHosts(word.to_owned()));
                }
                (Some('h'), ServerAddress::Host { host, .. }) => text.push_str(host),
                (Some('h'), ServerAddress::Socket(path)) => text.push_str(&path.display().to_string()),
                (Some('p'), ServerAddress::Host { port, .. }) => text.push_str(&port.to_string()),
                (Some('p'), ServerAddress::Socket(_)) => {
                    return Err(CommandSettingError::NoPort(word.to_owned()));
                }
                (Some('d'), _) => {
                    let none = || CommandSettingError::NoDatabase(word.to_owned());
                    text.push_str(&self.database_at(server).ok_or_else(none)?);
                }
                (other, _) => {
                    let unknown = format!("%{}", other.map(String::from).unwrap_or_default());
                    return Err(CommandSettingError::Substitution(unknown, word.to_owned()));
                }
            }
        }
        parts.push(WordPart::Text(text));
        Ok(parts)
    }
}

/// Clients cannot prove that they know a password that changes.
pub(super) fn check_clients(settings: &Settings) -> Result<(), ConfigError> {
    let with_command = settings.users.iter().find(|user| user.command.is_some());
    let with_command = match settings.access.unknown_users {
        UnknownUsers::Command(_) => Some(ANY_USER),
        _ => with_command.map(|user| user.name.as_str()),
    };
    match with_command {
        Some(user) if settings.needs_password(true) || settings.needs_password(false) => {
            Err(ConfigError::Command { user: user.to_owned(), reason: CommandSettingError::ClientsMustKnow })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
