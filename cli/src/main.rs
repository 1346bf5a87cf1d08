//! `muster`: the whole product in one binary.
//!
//! A task's supervisor is this binary too and must start at once, so it is told apart before anything
//! else is built.
#![forbid(unsafe_code)]

mod arguments;
mod command;
mod connection;
mod contexts;
mod exit;
mod failure;
mod job_file;
mod logging;
mod output;
mod parse;
mod service;
mod strict_yaml;
mod view;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(directory) = supervised() {
        return muster_worker::supervisor::main(&directory);
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

/// The task directory of `muster supervise DIRECTORY`: for workers, and hidden from people.
fn supervised() -> Option<PathBuf> {
    let words: Vec<OsString> = std::env::args_os().skip(1).take(3).collect();
    match words.as_slice() {
        [verb, directory] if verb == "supervise" => Some(PathBuf::from(directory)),
        _ => None,
    }
}
