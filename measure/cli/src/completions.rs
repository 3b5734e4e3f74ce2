//! `completions` and `man`: the files that a package installs with the program.

use ciphertoll_model::ExitCode;
use ciphertoll_model::presets::PRESETS;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::{Arguments, SHELLS};
use crate::failure::Failure;
use crate::output::print_document;

const NAME: &str = "ciphertoll";

pub(crate) fn completions(shell: Option<Shell>) -> Result<ExitCode, Failure> {
    let Some(shell) = shell else {
        let names = SHELLS.map(|(name, ..)| name).join(", ");
        return Err(Failure::usage(format!("completions needs a shell: {names}")));
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut script);
    let script =
        String::from_utf8(script).map_err(|error| Failure::new(ExitCode::Internal, error.to_string()))?;
    print_document(&with_names(shell, script))
}

/// Commands whose first argument is a run.
const OF_RUNS: [&str; 5] = ["report", "resume", "compare", "predict", "advise"];
/// The runs in the default directory, in every shell.
const RUNS: &str = "command ls ciphertoll-runs 2>/dev/null";

/// Adds the names of presets to `run`, and those of runs to the commands that read one. Elvish has neither.
fn with_names(shell: Shell, script: String) -> String {
    let presets = PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(" ");
    match shell {
        Shell::Bash => format!(
            "{script}
_ciphertoll_names() {{
    local names
    _ciphertoll \"$@\"
    case \"${{COMP_WORDS[1]}}\" in
        run) names=\"{presets}\" ;;
        {}) names=\"latest $({RUNS})\" ;;
    esac
    if [[ ${{COMP_CWORD}} -ge 2 && \"$2\" != -* && \"$3\" != -* && -n $names ]]; then
        COMPREPLY+=( $(compgen -W \"$names\" -- \"$2\") )
    fi
}}
complete -F _ciphertoll_names -o bashdefault -o default ciphertoll
",
            OF_RUNS.join("|")
        ),
        Shell::Fish => format!(
            "{script}complete -c ciphertoll -n \"__fish_ciphertoll_using_subcommand run\" -a \"{presets}\"
complete -c ciphertoll -n \"__fish_seen_subcommand_from {}\" -a \"latest ({RUNS})\"
",
            OF_RUNS.join(" ")
        ),
        Shell::Zsh => {
            let with = |names: &str| {
                format!(":{{ _alternative \"names:name:({names})\" \"files:file:_files\" }}' \\")
            };
            let line = |line: &str| match line.strip_suffix(":_default' \\") {
                Some(start) if start.starts_with("'::what ") => start.to_owned() + &with(&presets),
                Some(start) if ["'::run ", "':base ", "':new "].iter().any(|of| start.starts_with(of)) => {
                    start.to_owned() + &with(&format!("latest $({RUNS})"))
                }
                _ => line.to_owned(),
            };
            script.lines().map(|text| line(text) + "\n").collect()
        }
        _ => script,
    }
}

/// Prints the man page of `command`, or of the whole program.
pub(crate) fn man(command: Option<&str>) -> Result<ExitCode, Failure> {
    let mut whole = Arguments::command();
    // Sets the full names of the subcommands.
    whole.build();
    let page_of = match command {
        None => whole,
        Some(name) => whole.find_subcommand(name).cloned().ok_or_else(|| unknown(&whole, name))?,
    };
    let mut page = Vec::new();
    let rendered = Man::new(page_of).render(&mut page);
    rendered
        .map_err(|error| Failure::new(ExitCode::Internal, format!("cannot write the man page: {error}")))?;
    let page =
        String::from_utf8(page).map_err(|error| Failure::new(ExitCode::Internal, error.to_string()))?;
    print_document(&page)
}

fn unknown(whole: &clap::Command, name: &str) -> Failure {
    let names: Vec<&str> = whole.get_subcommands().map(clap::Command::get_name).collect();
    Failure::usage(format!("unknown command \"{name}\"; the commands are {}", names.join(", ")))
}
