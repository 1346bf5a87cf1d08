//! `muster`: the whole product in one binary.
//!
//! A task's supervisor can be this binary too and must start fast, so it is recognized before anything else
//! is built; so is the process that queries the GPU driver for a worker.
#![forbid(unsafe_code)]

mod arguments;
mod command;
mod connection;
mod contexts;
mod exit;
mod failure;
#[cfg(feature = "server")]
mod logging;
mod output;
mod parse;
mod platform;
#[cfg(feature = "server")]
mod service;
#[cfg(feature = "server")]
mod settings;
mod spans;
mod view;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "server")]
    if let Some(code) = run_helper() {
        return code;
    }
    let command = match arguments::parse() {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    match command.run() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print();
            failure.exit().into()
        }
    }
}

/// Runs a helper process of a worker, if this process was started as one.
#[cfg(feature = "server")]
fn run_helper() -> Option<ExitCode> {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    // `muster supervise DIRECTORY`: for workers without `muster-supervise` beside them; hidden from users.
    if let Some(code) = muster_worker::supervisor::run(&arguments) {
        return Some(code);
    }
    // `muster ask-gpus`: for workers, whose GPU driver may hang; hidden from users too.
    let log = || {
        logging::start(muster_service::settings::LogFormat::Json).map_err(|failure| failure.text())
    };
    muster_worker::monitor::gpu::helper::run(&arguments, log)
}
