//! Sentences and their tones.

use ciphertoll_model::labelled;

/// Statements that share a context.
#[derive(Debug)]
pub(crate) struct SentenceGroup {
    /// The context; absent if there is only one.
    pub(crate) heading: Option<String>,
    pub(crate) sentences: Vec<Sentence>,
}

/// One sentence or a few.
#[derive(Debug)]
pub(crate) struct Sentence {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

labelled! {
    /// The meaning of a sentence or number, shown by a mark and a colour.
    pub(crate) enum Tone {
        Neutral = "neutral",
        Caution = "caution",
        /// No difference.
        Same = "same",
        /// A difference below the margin.
        Negligible = "negligible",
        Unsure = "unsure",
        /// A lower cost than the baseline.
        Better = "better",
        /// A higher cost than the baseline.
        Worse = "worse",
    }
}

impl Sentence {
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { tone, text: text.into() }
    }

    pub(crate) fn neutral(text: impl Into<String>) -> Self {
        Self::new(Tone::Neutral, text)
    }

    pub(crate) fn caution(text: impl Into<String>) -> Self {
        Self::new(Tone::Caution, text)
    }
}

impl Tone {
    /// The class in style sheets.
    pub(crate) fn class(self) -> String {
        format!("tone-{}", self.label())
    }

    /// The mark in front of a sentence: colour alone carries no meaning.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Neutral => "·",
            Self::Caution => "!",
            Self::Same => "=",
            Self::Negligible => "≈",
            Self::Unsure => "?",
            Self::Better => "▼",
            Self::Worse => "▲",
        }
    }
}

pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// Foreign text, such as a server's error message, without control characters.
pub(crate) fn clean(text: &str) -> String {
    text.trim_end_matches(['.', '\n']).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
