//! Every example of the documents and of `--help` is accepted.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use super::Arguments;

const PROGRAM: &str = "ciphertoll ";
/// Names that a reader replaces, with something that is valid there.
const PLACEHOLDERS: [(&str, &str); 1] = [("NAME", "postgres-18")];

#[derive(Debug)]
struct Example {
    /// Where it was found: `README.md`, `ciphertoll run --help`.
    place: String,
    command: String,
}

#[test]
fn every_example_is_accepted() {
    let examples = every_example();
    assert!(examples.len() > 100, "examples are not found as they should be: {examples:#?}");
    let refused: Vec<String> = examples.iter().filter_map(refused).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// What clap says against an example.
fn refused(Example { place, command }: &Example) -> Option<String> {
    let words = words(command);
    let error = Arguments::try_parse_from(&words).err()?;
    // `ciphertoll tde convert --decrypt` in a sentence names the command.
    let is_name = words.iter().all(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
    let is_accepted = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => is_name,
        _ => false,
    };
    (!is_accepted).then(|| format!("{place}: {command}\n{error}"))
}

fn every_example() -> Vec<Example> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut examples = Vec::new();
    let mut add = |place: &str, commands: Vec<String>| {
        examples.extend(commands.into_iter().map(|command| Example { place: place.to_owned(), command }));
    };
    for document in documents(&root) {
        let text = fs::read_to_string(&document).expect("a document");
        add(&document.display().to_string(), in_document(&text));
    }
    let mut command = Arguments::command();
    command.build();
    let mut commands = vec![command];
    while let Some(mut command) = commands.pop() {
        let help = command.render_long_help().to_string();
        add(&format!("{} --help", command.get_bin_name().unwrap_or_default()), in_help(&help));
        commands.extend(command.get_subcommands().cloned());
    }
    examples
}

/// Of the project and of its documentation. The change log has commands of older versions.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut documents = vec![root.join("README.md")];
    let mut directories = vec![root.join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    documents
}

/// Lines of fenced blocks that begin with the program, and code spans outside of them that do.
fn in_document(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, part) in text.split("\n```").enumerate() {
        if index % 2 == 1 {
            // The rest of the fence's line is the language.
            let block = part.split_once('\n').map_or("", |(_, block)| block).replace("\\\n", " ");
            found.extend(block.lines().map(|line| line.trim().trim_start_matches("$ ").to_owned()));
        } else {
            // Paragraph by paragraph, because a span may cross lines, and a single backtick affects only one paragraph.
            let spans = part.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
            found.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
    found.retain(|command| is_command(command));
    found
}

/// All commands under `Examples:`, including explanations, where a command ends at a backtick or the line's end.
fn in_help(help: &str) -> Vec<String> {
    let examples = help.lines().skip_while(|line| !matches!(*line, "Examples:" | "Example:")).skip(1);
    let mut found = Vec::new();
    for line in examples.take_while(|line| line.is_empty() || line.starts_with(' ')) {
        let Some(start) = line.find(PROGRAM) else { continue };
        let (before, command) = line.split_at(start);
        let end = if before.ends_with('`') { command.find('`') } else { None };
        found.push(command[..end.unwrap_or(command.len())].trim_end().to_owned());
    }
    found.retain(|command| is_command(command));
    found
}

/// `ciphertoll run` and not `ciphertoll   5365 /s`, nor a sentence that ends with the name.
fn is_command(text: &str) -> bool {
    let after = text.strip_prefix(PROGRAM).unwrap_or_default();
    after.starts_with(|c: char| c.is_ascii_lowercase() || c == '-')
}

/// The arguments up to the first operator of the shell. An ellipsis stands for more arguments, and for none.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for character in command.chars() {
        match (quote, character) {
            (None, '|' | '>' | ';' | '&' | '#') => break,
            (None, ' ') => words.push(String::new()),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (_, _) => words.last_mut().expect("there is always one").push(character),
        }
    }
    words.retain(|word| !word.is_empty() && word != "…");
    for (placeholder, value) in PLACEHOLDERS {
        words.iter_mut().filter(|word| *word == placeholder).for_each(|word| value.clone_into(word));
    }
    words
}

#[test]
fn examples_are_found_in_documents_and_help() {
    let document = "Say `ciphertoll\nreport` or `--json`.\n\n| a | `ciphertoll run` |\n\n```sh\n\
                    $ ciphertoll run \\\n  --json > x\n  ciphertoll   5365 /s\nmake run\n```\n`ciphertoll`";
    let found = in_document(document);
    assert_eq!(found, ["ciphertoll report", "ciphertoll run", "ciphertoll run    --json > x"]);
    assert_eq!(words(&found[2]), ["ciphertoll", "run", "--json"]);
    assert_eq!(words("ciphertoll run … --query 'a; b' | jq"), ["ciphertoll", "run", "--query", "a; b"]);
    let help =
        "ciphertoll x\n\nExamples:\n  ciphertoll a > b\n      or `ciphertoll c d` does\n\nNo ciphertoll e\n";
    assert_eq!(in_help(help), ["ciphertoll a > b", "ciphertoll c d"]);
}
