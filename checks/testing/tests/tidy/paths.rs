//! Reads the paths of a Rust source: imports, and those in its code.

/// A `use` with one item.
pub(crate) struct Import {
    /// Whether it is a re-export.
    pub is_public: bool,
    pub path: Vec<String>,
    /// In a function or a module within the file.
    pub is_inner: bool,
    alias: Option<String>,
}

impl Import {
    /// What it is called here.
    pub(crate) fn name(&self) -> &String {
        self.alias.as_ref().unwrap_or(&self.path[self.path.len() - 1])
    }
}

/// The items that a file imports from its own crate, `a::{self, b}` as `a` and `a::b`.
pub(crate) fn imports(text: &str) -> Vec<Import> {
    let code = code(text);
    let mut imports = Vec::new();
    for statement in statements(&code) {
        let (is_public, tree) = match statement.split_once("use ") {
            Some((before, tree)) => (before.trim_start().starts_with("pub"), tree),
            None => continue,
        };
        for path in expanded(tree) {
            let (path, alias) = path.split_once(" as ").unwrap_or((&path, ""));
            let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let is_inner = statement.starts_with(' ');
            if is_inner && path[0] == "super" {
                // Of a module within the file, the parent is the file.
                "self".clone_into(&mut path[0]);
            }
            let alias = (!alias.is_empty()).then(|| alias.trim().to_owned());
            imports.push(Import { is_public, path, is_inner, alias });
        }
    }
    imports
}

/// The paths of at least two words in the code of a file, without imports.
pub(crate) fn paths(text: &str) -> Vec<Vec<String>> {
    let mut code = code(text);
    for statement in statements(&code).into_iter().map(str::to_owned).collect::<Vec<_>>() {
        code = code.replacen(&statement, "", 1);
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !is_path(c)).map(|word| word.trim_matches(':'));
    let paths = words.filter(|word| word.contains("::"));
    paths.map(|path| path.split("::").map(str::to_owned).collect()).collect()
}

/// The text of `use` statements, from their visibility on.
fn statements(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find("use ").map(|at| from + at) {
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = code[line..at].trim();
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        if before.is_empty() || before == "pub" || before.starts_with("pub(") && before.ends_with(')') {
            found.push(&code[line..end]);
        }
        from = at + 4;
    }
    found
}

/// The source without tests, comments, and the contents of strings.
fn code(text: &str) -> String {
    let mut code = String::new();
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '/' if text[at..].starts_with("//") => while characters.next_if(|(_, c)| *c != '\n').is_some() {},
            '"' => {
                let raw = text[..at].ends_with('r') || text[..at].ends_with("r#");
                let end = if text[..at].ends_with("r#") { "\"#" } else { "\"" };
                while let Some((at, c)) = characters.next() {
                    if c == '\\' && !raw {
                        characters.next();
                    } else if text[at..].starts_with(end) {
                        break;
                    }
                }
            }
            '\'' if text[at..].starts_with("'\"'") || text[at..].starts_with("'\\\"'") => {
                while characters.next_if(|(_, c)| *c != '"').is_some() {}
                characters.next();
            }
            _ => code.push(c),
        }
    }
    code
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expanded(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.trim();
        return if path.is_empty() { Vec::new() } else { vec![path.to_owned()] };
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    let below = parts.iter().flat_map(|part| expanded(part.trim()));
    below.map(|path| format!("{}{path}", prefix.trim())).collect()
}
