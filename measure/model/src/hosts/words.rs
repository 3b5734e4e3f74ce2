//! Splitting a command into words by the rules of a POSIX shell, without anything that a shell would expand.

/// The words of `text`: separated by white space; single quotes, double quotes and backslashes work as in a shell.
pub(super) fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                until(&mut chars, word, |c, _| c == '\'')?;
            }
            '"' => {
                let word = word.get_or_insert_default();
                quoted(&mut chars, word)?;
            }
            '\\' => word.get_or_insert_default().push(chars.next().ok_or("it ends with a backslash")?),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

const OPEN_QUOTE: &str = "a quote is not closed";

fn until(
    chars: &mut std::str::Chars<'_>,
    word: &mut String,
    is_end: impl Fn(char, &str) -> bool,
) -> Result<(), &'static str> {
    loop {
        match chars.next().ok_or(OPEN_QUOTE)? {
            c if is_end(c, word) => return Ok(()),
            c => word.push(c),
        }
    }
}

/// The rest of a word in double quotes, in which a backslash quotes only what a shell would expand.
fn quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), &'static str> {
    loop {
        match chars.next().ok_or(OPEN_QUOTE)? {
            '"' => return Ok(()),
            '\\' => {
                let next = chars.next().ok_or(OPEN_QUOTE)?;
                if !"\"\\$`".contains(next) {
                    word.push('\\');
                }
                word.push(next);
            }
            c => word.push(c),
        }
    }
}

/// The inverse of [`split`].
pub(super) fn join(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=:@%+,".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}
