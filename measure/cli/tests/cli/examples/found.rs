//! Collects examples: fenced blocks and code spans of the documents, and the examples in `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::answer;

const PROGRAM: &str = "ciphertoll ";

#[derive(Debug)]
pub(super) struct Example {
    /// Where it was found: `README.md`, `ciphertoll run --help`.
    pub place: String,
    pub command: String,
}

/// Every example once, in the order of the documents.
pub(super) fn every_example() -> Vec<Example> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut examples = Vec::new();
    for document in documents(&root) {
        let text = fs::read_to_string(&document).expect("a document");
        let place = document.strip_prefix(&root).expect("a document of the project").display().to_string();
        add(&mut examples, &place, in_document(&text));
    }
    for words in commands(&mut Vec::new()) {
        let help = help_of(&words);
        add(&mut examples, &format!("ciphertoll {} --help", words.join(" ")), in_help(&help));
    }
    examples
}

fn add(examples: &mut Vec<Example>, place: &str, commands: Vec<String>) {
    for command in commands {
        if examples.iter().all(|known| known.command != command) {
            examples.push(Example { place: place.to_owned(), command });
        }
    }
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let in_directory = |directory: PathBuf| fs::read_dir(directory).expect("a directory").flatten();
    let directories = [root.to_owned(), root.join("docs"), root.join("docs/measure")];
    let entries = directories.into_iter().flat_map(in_directory);
    let mut documents: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    // The change log mentions abbreviated commands, and those of older versions.
    documents.retain(|path| {
        path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("CHANGELOG.md")
    });
    documents.sort();
    documents
}

/// The words of each command that has a help page.
fn commands(words: &mut Vec<String>) -> Vec<Vec<String>> {
    let help = help_of(words);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let mut found = vec![words.clone()];
    for line in listed.take_while(|line| !line.is_empty()) {
        let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next()).unwrap_or_default();
        // Lines with more indentation continue a description.
        if !name.is_empty() && name != "help" {
            words.push(name.to_owned());
            found.extend(commands(words));
            words.pop();
        }
    }
    found
}

fn help_of(words: &[String]) -> String {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.push("--help");
    let answer = answer(&words, Path::new("."));
    assert_eq!(answer.code, Some(0), "{words:?}");
    answer.stdout
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
            found.extend(part.split("\n\n").flat_map(spans));
        }
    }
    found.retain(|command| is_command(command));
    found
}

fn spans(paragraph: &str) -> Vec<String> {
    let words = |span: &str| span.split_whitespace().collect::<Vec<_>>().join(" ");
    paragraph.split('`').skip(1).step_by(2).map(words).collect()
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

#[test]
fn examples_are_found_in_documents_and_help() {
    let document = "Say `ciphertoll\nreport` or `--json`.\n\n| a | `ciphertoll run` |\n\n```sh\n\
                    $ ciphertoll run \\\n  --json > x\n  ciphertoll   5365 /s\nmake run\n```\n`ciphertoll`";
    assert_eq!(
        in_document(document),
        ["ciphertoll report", "ciphertoll run", "ciphertoll run    --json > x"]
    );
    let help =
        "ciphertoll x\n\nExamples:\n  ciphertoll a > b\n      or `ciphertoll c d` does\n\nNo ciphertoll e\n";
    assert_eq!(in_help(help), ["ciphertoll a > b", "ciphertoll c d"]);
}
