//! The command of one user, or of any user, before the user's name is known.

use std::time::Duration;

use super::cell::PasswordCommand;

/// A part of a word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordPart {
    Text(String),
    /// The name of the user.
    User,
}

/// What a [`PasswordCommand`] has, for whatever user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTemplate {
    pub words: Vec<Vec<WordPart>>,
    pub lifetime: Option<Duration>,
    pub time_limit: Duration,
    pub hidden: Vec<String>,
    pub max_scram_iterations: u32,
}

impl CommandTemplate {
    pub fn for_user(&self, user: &str) -> PasswordCommand {
        let text = |part: &WordPart| match part {
            WordPart::Text(text) => text.clone(),
            WordPart::User => user.to_owned(),
        };
        PasswordCommand {
            user: user.to_owned(),
            words: self.words.iter().map(|word| word.iter().map(text).collect()).collect(),
            lifetime: self.lifetime,
            time_limit: self.time_limit,
            hidden: self.hidden.clone(),
            max_scram_iterations: self.max_scram_iterations,
        }
    }

    /// Whether the name of the user is in one of the words.
    pub fn names_user(&self) -> bool {
        self.words.iter().flatten().any(|part| *part == WordPart::User)
    }
}
