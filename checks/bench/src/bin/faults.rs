//! `make faults`: hits each process of a run with each fault in the middle of a trial. Prints a row per pair as a Markdown
//! table; exits with 1 if a row violates the contract.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use ciphertoll_bench::faults::matrix::{InjectedFault, Target};
use ciphertoll_bench::faults::row::{Row, carry_out};
use ciphertoll_bench::{ciphertoll_program, print_line};
use clap::Parser;

/// Hit each process of a run with each fault, and check what the run says, that it can be resumed, and that nothing is left
#[derive(Parser)]
struct FaultArguments {
    /// Test only pairs with this text: sidecar, killed, "tunnel: ssh", "load process, stopped"
    #[arg(long, default_value = "")]
    only: String,
    /// The directory of runs and scratch files, on a disk and with a short path
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/ciphertoll-faults")]
    place: PathBuf,
    /// The program ciphertoll, with ciphertoll-proxy in its directory [default: beside this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = FaultArguments::parse();
    let program = arguments.program.map_or_else(ciphertoll_program, |file| Ok(file.canonicalize()?))?;
    std::fs::create_dir_all(&arguments.place)?;
    let place = arguments.place.canonicalize()?;
    print_line(Row::heading())?;
    let (mut rows, mut violations) = (0, 0);
    for target in Target::ALL {
        for fault in InjectedFault::ALL {
            if !format!("{}, {}", target.label(), fault.label()).contains(&arguments.only) {
                continue;
            }
            let row = carry_out(&program, &place, target, fault);
            print_line(&row.line())?;
            rows += 1;
            violations += usize::from(!row.violations.is_empty());
        }
    }
    print_line(&format!("\n{violations} of {rows} pairs violate the contract"))?;
    Ok(if violations == 0 && rows > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
