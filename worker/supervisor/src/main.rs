//! `muster-supervise`: what `muster supervise` does, without the rest of `muster` to be loaded for every task.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

/// The exit code for arguments that mean nothing.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    muster_supervisor::run(&words).unwrap_or(ExitCode::from(USAGE))
}
