//! The password file of PostgreSQL clients (libpq, "The Password File").

/// The connection for which a password is looked up.
#[derive(Clone, Copy, Debug)]
pub struct PasswordQuery<'a> {
    /// As given by the user; `localhost` for a unix socket.
    pub host: &'a str,
    /// `None` matches any port: for a unix socket.
    pub port: Option<u16>,
    pub database: &'a str,
    pub user: &'a str,
}

/// The password of the first matching line `host:port:database:user:password`. `*` matches everything, and a
/// backslash escapes the next character.
pub fn find_password(text: &str, wanted: &PasswordQuery<'_>) -> Option<String> {
    let port = wanted.port.map(|port| port.to_string());
    let wanted = [Some(wanted.host), port.as_deref(), Some(wanted.database), Some(wanted.user)];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (password, asked) = fields.split_last()?;
        let fits = |(field, value): (&String, Option<&str>)| {
            field == "*" || value.is_none_or(|value| field == value)
        };
        (asked.len() == wanted.len() && asked.iter().zip(wanted).all(fits)).then(|| password.clone())
    })
}

fn fields(line: &str) -> Vec<String> {
    const FIELDS: usize = 5;
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            ':' if fields.len() < FIELDS => fields.push(String::new()),
            '\\' => fields[last].extend(characters.next()),
            other => fields[last].push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_line_wins() {
        let text =
            "# a comment\nother:5432:shop:app:no\ndb.example:*:shop:app:pa\\:ss\\\\word:more\n*:*:*:*:all\n";
        let of = |host| PasswordQuery { host, port: Some(5432), database: "shop", user: "app" };
        assert_eq!(find_password(text, &of("db.example")).as_deref(), Some("pa:ss\\word:more"));
        assert_eq!(find_password(text, &of("else")).as_deref(), Some("all"));
        assert_eq!(find_password("db.example:5432:shop:app", &of("db.example")), None);
        let socket = PasswordQuery { port: None, ..of("localhost") };
        assert_eq!(find_password("localhost:5432:shop:app:x", &socket).as_deref(), Some("x"));
    }
}
