//! `runs`: lists the run directories, and removes them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use ciphertoll_model::{Cell, ExitCode, Plan};
use ciphertoll_record::{
    CatalogueEntry, Removable, RemovableRun, RunContents, RunState, Selection, find_removable,
    finish_removals, list_runs, remove_run,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::arguments::runs::{Age, RemoveArguments, RunSelection, RunsArguments, RunsCommand};
use crate::failure::Failure;
use crate::output::{print_document, print_text};
use crate::progress::tell;
use crate::table::columns;

/// More levels of a factor are counted, not listed.
const LISTED_LEVELS: usize = 4;

pub(crate) fn runs(arguments: &RunsArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        Some(RunsCommand::Rm(arguments)) => remove(arguments),
        None => list(&arguments.run_dir, arguments.json),
    }
}

fn list(runs: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let catalogue = list_runs(runs)?;
    if catalogue.removals_to_finish > 0 {
        tell(&format!(
            "{} of interrupted removals remain in {}; the next `ciphertoll runs rm` deletes them",
            counted(catalogue.removals_to_finish, "directory", "directories"),
            runs.display()
        ));
    }
    if as_json {
        let entries: Vec<Value> = catalogue.runs.iter().map(document).collect();
        return print_document(&serde_json::to_string_pretty(&json!({ "runs": entries }))?);
    }
    print_text(&listing(runs, &catalogue.runs))
}

fn listing(runs: &Path, entries: &[CatalogueEntry]) -> String {
    if entries.is_empty() {
        return format!("no runs in {}\n", runs.display());
    }
    let head = ["run", "state", "began (UTC)", "size", "what was run"].map(str::to_owned);
    let rows = entries.iter().map(|entry| {
        [
            entry.name.clone(),
            entry.state.label().to_owned(),
            entry.began_at.strftime("%Y-%m-%d %H:%M").to_string(),
            size(entry.size_bytes),
            what_was_run(entry),
        ]
    });
    let table = columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    format!("{table}\n{}\n", total(entries.iter(), runs))
}

fn total<'a>(entries: impl Iterator<Item = &'a CatalogueEntry>, runs: &Path) -> String {
    let sizes: Vec<u64> = entries.map(|entry| entry.size_bytes).collect();
    format!("{}, {} in {}", counted(sizes.len(), "run", "runs"), size(sizes.iter().sum()), runs.display())
}

/// `6 of 6 blocks: mariadb, postgres; connect; plain, tls1.3-p256`, or why the run cannot be read.
fn what_was_run(entry: &CatalogueEntry) -> String {
    match (&entry.contents, &entry.state) {
        (Some(RunContents::Run { plan, blocks_completed }), _) => {
            let blocks = format!("{blocks_completed} of {} blocks", plan.counted_blocks());
            let factors = factors(plan).map(|(_, levels)| shortened(&levels));
            format!("{blocks}: {}", factors.join("; "))
        }
        (Some(RunContents::Observation(seen)), _) => format!(
            "observed {} for {:.0} s: {} in {}",
            seen.source,
            seen.seconds,
            counted(usize::try_from(seen.connects()).unwrap_or(usize::MAX), "connect", "connects"),
            counted(seen.pairs(), "pair", "pairs"),
        ),
        (None, RunState::Unreadable { reason }) => reason.clone(),
        (None, _) => "nothing yet".to_owned(),
    }
}

/// The levels that tell runs apart, in the order of the plan.
fn factors(plan: &Plan) -> [(&'static str, Vec<String>); 3] {
    let cells = &plan.cells;
    [
        ("servers", distinct(cells, |cell| cell.treatment.server.short_name())),
        ("workloads", distinct(cells, |cell| cell.workload.to_string())),
        ("paths", distinct(cells, |cell| cell.treatment.path.to_string())),
    ]
}

fn distinct(cells: &[Cell], level: impl Fn(&Cell) -> String) -> Vec<String> {
    let mut levels: Vec<String> = Vec::new();
    for level in cells.iter().map(level) {
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    levels
}

fn shortened(levels: &[String]) -> String {
    let listed = levels.get(..LISTED_LEVELS).unwrap_or(levels).join(", ");
    match levels.len().saturating_sub(LISTED_LEVELS) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

fn document(entry: &CatalogueEntry) -> Value {
    let mut document = json!({
        "name": entry.name,
        "path": entry.path.display().to_string(),
        "state": entry.state.label().replace(' ', "_"),
        "began_at": entry.began_at.to_string(),
        "size_bytes": entry.size_bytes,
    });
    if let RunState::Unreadable { reason } = &entry.state {
        document["reason"] = json!(reason);
    }
    match &entry.contents {
        Some(RunContents::Run { plan, blocks_completed }) => {
            document["experiment"] = json!(plan.name);
            document["blocks_completed"] = json!(blocks_completed);
            document["blocks_planned"] = json!(plan.counted_blocks());
            for (factor, levels) in factors(plan) {
                document[factor] = json!(levels);
            }
        }
        Some(RunContents::Observation(seen)) => {
            let (source, seconds) = (&seen.source, seen.seconds);
            let (pairs, connects) = (seen.pairs(), seen.connects());
            document["observation"] =
                json!({ "source": source, "seconds": seconds, "pairs": pairs, "connects": connects });
        }
        None => {}
    }
    document
}

fn remove(arguments: &RemoveArguments) -> Result<ExitCode, Failure> {
    let RunSelection { runs: names, older_than, all: _ } = &arguments.which;
    let selection = match older_than {
        Some(Age(age)) => Selection::OlderThan(*age),
        None if names.is_empty() => Selection::All,
        None => Selection::Named(names),
    };
    let Removable { runs, in_progress } = find_removable(&arguments.run_dir, selection, Timestamp::now())?;
    if !runs.is_empty() && !arguments.yes && confirm(&runs)? == Answer::No {
        tell("nothing was removed");
        return Ok(ExitCode::Done);
    }
    let mut removal = Removal::default();
    let mut directories: BTreeSet<PathBuf> = BTreeSet::from([arguments.run_dir.clone()]);
    for run in runs {
        directories.extend(run.entry().path.parent().map(Path::to_owned));
        removal.remove(run);
    }
    for directory in &directories {
        removal.finish_earlier(directory);
    }
    for entry in &in_progress {
        removal.leave(entry, &"it is in progress");
    }
    removal.report(arguments.json)
}

#[derive(PartialEq, Eq)]
enum Answer {
    Yes,
    No,
}

/// Lists the runs and asks. Fails without a terminal.
fn confirm(runs: &[RemovableRun]) -> Result<Answer, Failure> {
    let entries: Vec<&CatalogueEntry> = runs.iter().map(RemovableRun::entry).collect();
    let what = counted(entries.len(), "run", "runs");
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::usage(format!(
            "{what} would be removed; stdin and stderr must be a terminal for the question: add --yes"
        )));
    }
    for entry in &entries {
        tell(&format!("{}  {}  {}", entry.path.display(), size(entry.size_bytes), what_was_run(entry)));
    }
    let bytes = size(entries.iter().map(|entry| entry.size_bytes).sum());
    let failed =
        |error: io::Error| Failure::new(ExitCode::HostResource, format!("cannot read the answer: {error}"));
    let mut stderr = io::stderr();
    write!(stderr, "Remove {what} ({bytes})? [y/N] ").and_then(|()| stderr.flush()).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    let is_yes = ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str());
    Ok(if is_yes { Answer::Yes } else { Answer::No })
}

/// What a removal has done so far.
#[derive(Default)]
struct Removal {
    removed: Vec<CatalogueEntry>,
    /// Runs that remain, with the reason.
    left: Vec<(String, String)>,
    /// Exit code of the first failure.
    failure: Option<ExitCode>,
    removals_finished: usize,
}

impl Removal {
    fn remove(&mut self, run: RemovableRun) {
        let entry = run.entry().clone();
        match remove_run(run) {
            Ok(()) => self.removed.push(entry),
            Err(error) => {
                self.failure.get_or_insert(error.exit_code());
                self.leave(&entry, &error);
            }
        }
    }

    fn finish_earlier(&mut self, directory: &Path) {
        match finish_removals(directory) {
            Ok(finished) => self.removals_finished += finished,
            Err(error) => {
                self.failure.get_or_insert(error.exit_code());
                self.left.push((directory.display().to_string(), error.to_string()));
            }
        }
    }

    fn leave(&mut self, entry: &CatalogueEntry, reason: &dyn Display) {
        self.left.push((entry.path.display().to_string(), reason.to_string()));
    }

    fn exit_code(&self) -> ExitCode {
        match (self.failure, self.removed.is_empty()) {
            (Some(failure), true) => failure,
            _ if self.left.is_empty() => ExitCode::Done,
            _ => ExitCode::DoneInPart,
        }
    }

    fn report(&self, as_json: bool) -> Result<ExitCode, Failure> {
        for (path, reason) in &self.left {
            tell(&format!("{path} was not removed: {reason}"));
        }
        let bytes: u64 = self.removed.iter().map(|entry| entry.size_bytes).sum();
        let printed = if as_json {
            let removed: Vec<Value> = self.removed.iter().map(document).collect();
            let left = self.left.iter().map(|(path, reason)| json!({ "path": path, "reason": reason }));
            serde_json::to_string_pretty(&json!({
                "removed": removed,
                "left": left.collect::<Vec<Value>>(),
                "freed_bytes": bytes,
                "interrupted_removals_finished": self.removals_finished,
            }))?
        } else {
            let earlier = match self.removals_finished {
                0 => String::new(),
                finished => format!(
                    ", and the remains of {}",
                    counted(finished, "interrupted removal", "interrupted removals")
                ),
            };
            format!("removed {} ({}){earlier}", counted(self.removed.len(), "run", "runs"), size(bytes))
        };
        print_document(&printed).map(|_| self.exit_code())
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Three significant digits, in the units of disks.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB"].into_iter().peekable();
    let mut unit = units.next().unwrap_or_default();
    while value >= 999.5
        && let Some(larger) = units.next()
    {
        (value, unit) = (value / 1000.0, larger);
    }
    let decimals = if unit == "B" || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_and_a_unit() {
        let sizes = [0, 999, 1_000, 12_345, 999_600, 5_400_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.00 kB", "12.3 kB", "1.00 MB", "5.40 GB"]);
    }

    #[test]
    fn long_lists_of_levels_are_shortened() {
        let levels = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        assert_eq!(shortened(&levels[..4]), "a, b, c, d");
        assert_eq!(shortened(&levels), "a, b, c, d and 2 more");
    }

    #[test]
    fn a_failure_after_a_removal_is_done_in_part() {
        let left = vec![("run".to_owned(), "reason".to_owned())];
        let failed = Removal { left, failure: Some(ExitCode::HostResource), ..Removal::default() };
        assert_eq!(failed.exit_code(), ExitCode::HostResource);
        let in_progress = Removal { failure: None, ..failed };
        assert_eq!(in_progress.exit_code(), ExitCode::DoneInPart);
        assert_eq!(Removal::default().exit_code(), ExitCode::Done);
    }
}
