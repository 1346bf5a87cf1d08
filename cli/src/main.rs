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
mod logging;
mod output;
mod parse;
mod service;
mod settings;
mod spans;
mod view;

use std::ffi::OsString;
use std::process::ExitCode;

use muster_settings::LogFormat;

fn main() -> ExitCode {
    // `muster supervise DIRECTORY`: for workers without `muster-supervise` beside them, hidden from people.
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = muster_worker::supervisor::run(&words) {
        return code;
    }
    // `muster ask-gpus`: for workers, whose GPUs' driver may hang, hidden from people too.
    let log = || logging::start(LogFormat::Json).map_err(|failure| failure.text());
    if let Some(code) = muster_worker::gpu::helper::run(&words, log) {
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
