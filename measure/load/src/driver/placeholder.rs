//! Text templates: `--port={port}`. Parsed once, so that a misspelt name is an error of the file and not of a trial.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};

macro_rules! placeholders {
    ($($name:literal $placeholder:ident,)*) => {
        /// A name in braces.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Placeholder {
            $($placeholder,)*
        }

        const NAMES: &[(&str, Placeholder)] = &[$(($name, Placeholder::$placeholder),)*];
    };
}

placeholders! {
    "branches" Branches,
    "build" Build,
    "ca_file" CaFile,
    "certificate_file" CertificateFile,
    "channel_binding" ChannelBinding,
    "clients" Clients,
    "database" Database,
    "directory" Directory,
    "host" Host,
    "key_file" KeyFile,
    "operations" Operations,
    "password" Password,
    "port" Port,
    "rows" Rows,
    "seconds" Seconds,
    "seed" Seed,
    "server_name" ServerName,
    "socket" Socket,
    "socket_directory" SocketDirectory,
    "threads" Threads,
    "tls_version" TlsVersion,
    "user" User,
}

/// The values of one run. A placeholder without a value does not apply to the trial.
pub(super) type Values = BTreeMap<Placeholder, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextTemplate(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Value(Placeholder),
}

impl TextTemplate {
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
            } else if brace == "{" {
                let (name, after) = rest.split_once('}').ok_or("a { without its }; a brace itself is {{")?;
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
                parts.push(TemplatePart::Value(placeholder(name)?));
                rest = after;
            } else {
                return Err("a } without its {; a brace itself is }}".to_owned());
            }
        }
        plain.push_str(rest);
        parts.push(TemplatePart::Text(plain));
        parts.retain(|part| !matches!(part, TemplatePart::Text(text) if text.is_empty()));
        Ok(Self(parts))
    }

    /// The text; `None` if a placeholder has no value.
    pub(super) fn fill(&self, values: &Values) -> Option<String> {
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => Some(text.clone()),
            TemplatePart::Value(placeholder) => values.get(placeholder).cloned(),
        };
        self.0.iter().map(part).collect()
    }

    pub(super) fn names(&self, placeholder: Placeholder) -> bool {
        self.0.contains(&TemplatePart::Value(placeholder))
    }
}

fn placeholder(text: &str) -> Result<Placeholder, String> {
    let found = NAMES.iter().find(|(name, _)| *name == text);
    found.map(|(_, placeholder)| *placeholder).ok_or_else(|| {
        let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        format!("unknown placeholder {{{text}}}; it is one of: {}", known.join(", "))
    })
}

impl<'de> Deserialize<'de> for TextTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced() {
        let values =
            Values::from([(Placeholder::Host, "::1".to_owned()), (Placeholder::Port, "7".to_owned())]);
        let template = TextTemplate::parse("[{host}]:{port} {{port}}").unwrap();
        assert_eq!(template.fill(&values).unwrap(), "[::1]:7 {port}");
        assert!(template.names(Placeholder::Port));
        assert!(!template.names(Placeholder::User));
    }

    #[test]
    fn a_text_without_its_value_is_omitted() {
        assert_eq!(TextTemplate::parse("--ssl-cert={certificate_file}").unwrap().fill(&Values::new()), None);
    }

    #[test]
    fn misspelt_names_and_lone_braces_are_errors() {
        assert!(
            TextTemplate::parse("{prot}").unwrap_err().contains("unknown placeholder {prot}; it is one of")
        );
        assert!(TextTemplate::parse("{port").unwrap_err().contains("without its }"));
        assert!(TextTemplate::parse("port}").unwrap_err().contains("without its {"));
    }
}
