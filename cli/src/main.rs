//! `muster`: the whole product in one binary.
//!
//! A task's supervisor can be this binary too and must start at once, so it is told apart before anything
//! else is built; so is the process that asks the GPUs' driver for a worker.
#![forbid(unsafe_code)]

mod archive;
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

/// Runs a helper process of a worker, if that is what this process was started as.
#[cfg(feature = "server")]
fn run_helper() -> Option<ExitCode> {
    let words: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    // `muster supervise DIRECTORY`: for workers without `muster-supervise` beside them, hidden from people.
    if let Some(code) = muster_worker::supervisor::run(&words) {
        return Some(code);
    }
    // `muster ask-gpus`: for workers, whose GPUs' driver may hang, hidden from people too.
    let log = || {
        logging::start(muster_service::settings::LogFormat::Json).map_err(|failure| failure.text())
    };
    muster_worker::gpu::helper::run(&words, log)
}
