//! `muster-gpu-check`: what `muster gpu check` does, for hosts that have only this.
#![forbid(unsafe_code)]

use std::io::{Write, stdout};
use std::process::ExitCode;

use clap::Parser;
use muster_gpu_check::Options;

/// Check GPUs on which nothing runs: memory, products of matrices, ways to the host and to each other
#[derive(Debug, Parser)]
#[command(name = "muster-gpu-check", version, max_term_width = 100)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let report = muster_gpu_check::check(&CommandLine::parse().options);
    // Who reads nothing still has the exit code.
    drop(write!(stdout(), "{report}"));
    ExitCode::from(report.exit_code())
}
