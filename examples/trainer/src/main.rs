//! Data-parallel trainer: the job that the demo and the tests expose to faults.
//!
//! It trains a small network on real data with plain SGD. Every rank computes the gradient of its share of
//! a batch, a ring all-reduce with a fixed order adds the shares, and every rank applies the same sum: so
//! the final weights have the same bits regardless of timing and interruptions. It knows Muster only
//! through the task environment: ranks, checkpoint folder, control socket, preempt flag.

#![forbid(unsafe_code)]

mod arguments;
mod busy;
mod checkpoint;
mod clock;
mod control;
mod data;
mod data_order;
mod duplex;
mod ledger;
mod lifetime_record;
mod line;
mod model;
mod outcome;
mod rendezvous;
mod report;
mod ring;
mod state;
mod stop;
mod trainer;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::ledger::GpuLedger;
use crate::outcome::{EXIT_DO_NOT_RESTART, EXIT_ERROR, is_hopeless};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = GpuLedger::hold_own_gpus().and_then(|_held| match arguments.command {
        Some(Command::Busy(busy)) => Ok(busy::run(&busy)),
        None => trainer::run(&arguments.train),
    });
    match result {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            // There is no way to report it if standard error itself is gone.
            let _ = writeln!(
                std::io::stderr(),
                "muster-trainer: rank {}: {error:#}",
                arguments.train.rank
            );
            let hopeless = is_hopeless(&error);
            ExitCode::from(if hopeless {
                EXIT_DO_NOT_RESTART
            } else {
                EXIT_ERROR
            })
        }
    }
}
