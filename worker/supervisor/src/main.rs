//! `muster-supervise`: the same as `muster supervise`, without loading the rest of `muster` for every task.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

/// Exit code for invalid arguments.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    muster_supervisor::run(&arguments).unwrap_or(ExitCode::from(USAGE))
}
