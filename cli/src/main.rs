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

use std::process::ExitCode;

fn main() -> ExitCode {
    match arguments::parse() {
        Ok(command) => match command.run() {
            Ok(exit) => exit.into(),
            Err(failure) => {
                failure.print();
                failure.exit().into()
            }
        },
        Err(exit) => exit.into(),
    }
}
