//! What the settings name.

use ciphertoll_model::{Engine, QueryLanguage, ServerUrl, TlsDemand, UrlPlace, Verification};

/// Hosts, users, databases and files: the user's own, as far as a URL has them, and examples.
pub(super) struct SettingNames {
    /// As in a URL.
    host: String,
    port: u16,
    user: String,
    database: Option<String>,
    /// The file of the server's authority; absent for the system's authorities.
    authority: Option<String>,
    /// The client's certificate and key.
    identity: [String; 2],
    /// The user's URL of a document database, if it verifies the server.
    pub(super) verified_documents_url: Option<String>,
}

impl SettingNames {
    fn examples(engine: Engine) -> Self {
        let port = match engine {
            Engine::Postgres => 5432,
            Engine::MariaDb | Engine::MySql => 3306,
            Engine::MongoDb | Engine::FerretDb => 27017,
        };
        Self {
            host: "db.example".to_owned(),
            port,
            user: "app".to_owned(),
            database: Some("shop".to_owned()),
            authority: Some("/etc/ssl/db-ca.pem".to_owned()),
            identity: ["/etc/ssl/app-cert.pem", "/etc/ssl/private/app-key.pem"].map(ToOwned::to_owned),
            verified_documents_url: None,
        }
    }

    pub(super) fn of(engine: Engine, url: Option<&ServerUrl>) -> Self {
        let examples = Self::examples(engine);
        let Some(url) = url else { return examples };
        let (host, port) = match &url.place {
            UrlPlace::Host { host, port } if host.contains(':') => (format!("[{host}]"), *port),
            UrlPlace::Host { host, port } => (host.clone(), *port),
            // The server's host is this one, whose name the URL does not have.
            UrlPlace::Socket(_) => (examples.host, examples.port),
        };
        let is_verified = url.tls.demand == TlsDemand::Always(Verification::Full);
        let own = |file: &std::path::Path| file.display().to_string();
        let authority = url.tls.ca_file.as_deref().map(own);
        let identity = url.tls.identity.as_ref();
        let is_of_documents = engine.query_language() == QueryLanguage::Documents;
        Self {
            host,
            port,
            user: if url.user.is_empty() { examples.user } else { url.user.clone() },
            database: url.database.clone(),
            authority: if is_verified { authority } else { authority.or(examples.authority) },
            identity: identity.map_or(examples.identity, |identity| {
                [&identity.certificate_file, &identity.key_file].map(|file| own(file))
            }),
            verified_documents_url: (is_of_documents && is_verified).then(|| url.to_string()),
        }
    }

    /// `app@db.example:5432/shop`
    pub(super) fn place(&self) -> String {
        let Self { host, port, .. } = self;
        format!("{}@{host}:{port}/{}", self.url_user(), self.url_database())
    }

    pub(super) fn url_user(&self) -> String {
        encoded(&self.user)
    }

    pub(super) fn url_database(&self) -> String {
        self.database.as_deref().map(encoded).unwrap_or_default()
    }

    pub(super) fn authority_option(&self, option: &str) -> Option<String> {
        Some(format!("{option}={}", encoded(self.authority.as_deref()?)))
    }

    pub(super) fn identity_options(&self, certificate: &str, key: &str) -> String {
        let [certificate_file, key_file] = self.identity.each_ref().map(|file| encoded(file));
        format!("&{certificate}={certificate_file}&{key}={key_file}")
    }

    /// As a string of MySQL.
    pub(super) fn sql_user(&self) -> String {
        format!("'{}'", self.user.replace('\\', r"\\").replace('\'', "''"))
    }

    /// As a string of TOML.
    pub(super) fn toml_user(&self) -> String {
        let escaped = |c: char| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
            c => c.to_string(),
        };
        format!("\"{}\"", self.user.chars().map(escaped).collect::<String>())
    }
}

/// With everything escaped that could end a part of a URL (RFC 3986), or a string or line of a file.
fn encoded(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'/' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escaped).collect()
}
