//! `muster-gpu-check`: the same as `muster gpu check`, as a separate small program.
#![forbid(unsafe_code)]

use std::io::{Write, stdout};
use std::process::ExitCode;

use clap::Parser;
use muster_gpu_check::Options;

/// Check GPUs on which nothing runs: memory, matrix products, bandwidth to the host and between GPUs
#[derive(Debug, Parser)]
#[command(name = "muster-gpu-check", version, max_term_width = 100)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let report = muster_gpu_check::check(&CommandLine::parse().options);
    // A caller that closed the output still gets the exit code.
    drop(write!(stdout(), "{report}"));
    ExitCode::from(report.exit_code())
}
