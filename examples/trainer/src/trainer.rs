//! Training run of one rank: join, resume, step, save, stop.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::arguments::TrainArguments;
use crate::checkpoint::{self, CheckpointError, CheckpointFolder, LoadedCheckpoint};
use crate::clock::{now, pause};
use crate::control::{Control, Delivery};
use crate::data::Data;
use crate::data_order::DataOrder;
use crate::lifetime_record::LifetimeRecord;
use crate::model::{Model, WEIGHTS};
use crate::outcome::Outcome;
use crate::rendezvous;
use crate::report::Report;
use crate::ring::Ring;
use crate::state::TrainingState;
use crate::stop::StopSignal;

/// Values that the ranks add up in addition to the gradient: the loss, and the number of ranks that want to
/// stop.
const LOSS: usize = WEIGHTS;
const STOPS: usize = WEIGHTS + 1;
const REDUCED: usize = WEIGHTS + 2;
/// Interval at which rank 0 prints a line and reports its progress to the agent.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Trains until the steps are done or this gang is asked to stop.
pub(crate) fn run(arguments: &TrainArguments) -> Result<Outcome> {
    arguments.validate()?;
    let stop = StopSignal::install(arguments.control_dir(), !arguments.stubborn)?;
    let presence = LifetimeRecord::begin(arguments)?;
    let Some(ring) = rendezvous::join(arguments, &stop)? else {
        // No step was done: the checkpoint that this attempt would have resumed from is still the newest
        // state.
        let saved = arguments.checkpoint_dir().is_some();
        return Ok(if saved {
            Outcome::Checkpointed
        } else {
            Outcome::Terminated
        });
    };
    Trainer::start(arguments, ring, stop)?.train(&presence)
}

/// Result of a step over the whole gang.
struct StepResult {
    loss: f32,
    is_stop_wanted: bool,
}

/// One rank during training.
struct Trainer<'a> {
    arguments: &'a TrainArguments,
    ring: Ring,
    stop: StopSignal,
    control: Control,
    folder: Option<CheckpointFolder>,
    data: Data,
    order: DataOrder,
    model: Model,
    step: u64,
    restarts: u32,
    loss_first: f32,
    resumed_from: Option<u64>,
    last_checkpoint: Instant,
    last_progress: Instant,
}

impl<'a> Trainer<'a> {
    /// Loads the data and adopts the state that rank 0 read.
    fn start(arguments: &'a TrainArguments, mut ring: Ring, stop: StopSignal) -> Result<Self> {
        let data = Data::load();
        anyhow::ensure!(
            arguments.batch <= data.training.len(),
            "--batch {} is more than the {} training samples",
            arguments.batch,
            data.training.len()
        );
        // Only rank 0 reads, so that all agree on the step even if hosts share no file system.
        let own = if arguments.rank == 0 {
            first_state(arguments)?.encode()
        } else {
            Vec::new()
        };
        let state =
            TrainingState::decode(&ring.broadcast(own)?).context("receive rank 0's state")?;
        let folder = match arguments.checkpoint_dir() {
            Some(root) if arguments.rank == 0 => Some(CheckpointFolder::open(root)?),
            _ => None,
        };
        Ok(Self {
            order: DataOrder::new(arguments.seed, data.training.len(), arguments.batch),
            resumed_from: (state.restarts > 0 && arguments.resume_from().is_some())
                .then_some(state.step),
            model: Model::from_weights(state.weights),
            step: state.step,
            restarts: state.restarts,
            loss_first: state.loss_first,
            control: Control::new(arguments.control_socket().map(Path::to_owned)),
            last_checkpoint: now(),
            last_progress: now(),
            arguments,
            ring,
            stop,
            folder,
            data,
        })
    }

    fn train(mut self, presence: &LifetimeRecord) -> Result<Outcome> {
        self.print(&self.greeting());
        presence.reached(self.step)?;
        let mut loss_final = None;
        while self.step < self.arguments.steps {
            let started = now();
            let result = self.step()?;
            presence.reached(self.step)?;
            loss_final = Some(result.loss);
            if result.is_stop_wanted {
                return self.stop_here();
            }
            if self.is_checkpoint_due() {
                self.checkpoint()?;
            }
            self.report_progress(result.loss)?;
            pause(Duration::from_millis(self.arguments.step_ms).saturating_sub(started.elapsed()));
        }
        self.finish(loss_final)?;
        Ok(Outcome::Finished)
    }

    /// One step of SGD over all ranks.
    fn step(&mut self) -> Result<StepResult> {
        let TrainArguments {
            rank,
            world_size,
            batch,
            learning_rate,
            ..
        } = *self.arguments;
        let mut sums = vec![0.0; REDUCED];
        let share = self.order.share(self.step, rank, world_size);
        sums[LOSS] = self
            .model
            .add_gradient(&self.data.training, share, &mut sums[..WEIGHTS]);
        sums[STOPS] = if self.stop.is_raised() { 1.0 } else { 0.0 };
        self.ring.all_reduce(&mut sums)?;
        self.model
            .descend(&sums[..WEIGHTS], learning_rate / batch as f32);
        let loss = sums[LOSS] / batch as f32;
        if self.step == 0 {
            self.loss_first = loss;
        }
        self.step += 1;
        Ok(StepResult {
            loss,
            is_stop_wanted: sums[STOPS] > 0.0,
        })
    }

    /// Saves by agreement of all ranks, which learn from the last sum whether it is done.
    fn stop_here(&mut self) -> Result<Outcome> {
        let saving = match self.folder {
            Some(_) => self.checkpoint().map(|()| true),
            None => Ok(false),
        };
        let mut saved = [if matches!(saving, Ok(true)) { 1.0 } else { 0.0 }];
        self.ring.all_reduce(&mut saved)?;
        saving?;
        let is_saved = saved[0] > 0.0;
        let end = if is_saved {
            "saved"
        } else {
            "nothing is saved"
        };
        self.print(&format!("asked to stop after step {}: {end}", self.step));
        Ok(if is_saved {
            Outcome::Checkpointed
        } else {
            Outcome::Terminated
        })
    }

    /// Only at multiples, so that the step of a resume does not depend on the speed of the run.
    fn is_checkpoint_due(&self) -> bool {
        self.folder.is_some()
            && self.step.is_multiple_of(self.arguments.checkpoint_steps)
            && self.last_checkpoint.elapsed().as_secs_f64() >= self.arguments.checkpoint_seconds
    }

    /// Saves on rank 0, the only rank with a folder.
    fn checkpoint(&mut self) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        self.control.begin(self.step, &folder.path_of(self.step))?;
        let committed = folder.write(&self.state())?;
        let delivery = self.control.commit(&committed)?;
        let note = match delivery {
            Delivery::Acknowledged | Delivery::NoAgent => {
                // Until an agent has received this checkpoint, an older one may be named to resume from.
                folder.prune(committed.step, self.arguments.checkpoints_kept)?;
                String::new()
            }
            Delivery::Unreachable => ", the agent is away".to_owned(),
            Delivery::Refused(why) => format!(", the agent refuses it: {why}"),
        };
        self.last_checkpoint = now();
        self.print(&format!(
            "checkpoint of step {}: {} bytes, {}{note}",
            self.step, committed.bytes, committed.digest
        ));
        Ok(())
    }

    fn state(&self) -> TrainingState {
        TrainingState {
            seed: self.arguments.seed,
            batch: self.arguments.batch as u64,
            step: self.step,
            restarts: self.restarts,
            loss_first: self.loss_first,
            weights: self.model.weights().to_vec(),
        }
    }

    fn report_progress(&mut self, loss: f32) -> Result<()> {
        if self.arguments.rank != 0 || self.last_progress.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.last_progress = now();
        let (step, steps) = (self.step, self.arguments.steps);
        let accuracy = 100.0 * self.model.accuracy(&self.data.test);
        let epoch = self.order.epoch_of(step);
        self.print(&format!(
            "step {step:>6}/{steps}  epoch {epoch:>4}  loss {loss:.4}  accuracy {accuracy:.1} %"
        ));
        self.control.progress(step)?;
        Ok(())
    }

    fn finish(&self, loss_final: Option<f32>) -> Result<()> {
        if self.arguments.rank != 0 {
            return Ok(());
        }
        let report = Report {
            steps: self.step,
            loss_first: self.loss_first,
            loss_final,
            accuracy: self.model.accuracy(&self.data.test),
            weights_digest: self.state().weights_digest(),
            resumed_from: self.resumed_from,
            restarts: self.restarts,
        };
        self.control.progress(self.step)?;
        self.print(&format!(
            "done: {} steps, loss {:.4} at first, {:.4} at last, accuracy {:.1} %, weights {}",
            report.steps,
            report.loss_first,
            loss_final.unwrap_or(f32::NAN),
            100.0 * report.accuracy,
            report.weights_digest
        ));
        match &self.arguments.report {
            Some(path) => report.write(path),
            None => Ok(()),
        }
    }

    fn greeting(&self) -> String {
        let TrainArguments {
            rank,
            world_size,
            batch,
            steps,
            ..
        } = self.arguments;
        let start = match self.step {
            0 => "from the start".to_owned(),
            step => format!(
                "from the checkpoint of step {step} (restart {})",
                self.restarts
            ),
        };
        format!(
            "rank {rank} of {world_size}: {WEIGHTS} weights, batches of {batch}, {steps} steps, {start}"
        )
    }

    /// Prints a line for users. Training does not end if the output is closed.
    fn print(&self, line: &str) {
        let mut output = std::io::stdout().lock();
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    }
}

/// The initial state: the checkpoint's, or a fresh one.
fn first_state(arguments: &TrainArguments) -> Result<TrainingState, CheckpointError> {
    let (seed, batch) = (arguments.seed, arguments.batch as u64);
    let Some(path) = arguments.resume_from() else {
        let weights = Model::random(seed).weights().to_vec();
        return Ok(TrainingState {
            seed,
            batch,
            step: 0,
            restarts: 0,
            loss_first: f32::NAN,
            weights,
        });
    };
    let LoadedCheckpoint {
        path,
        mut state,
        fallback_reason,
    } = checkpoint::read_newest_from(path)?;
    if let Some(damage) = fallback_reason {
        let used = path.display();
        // Like every line for users: training does not end if the output is closed.
        let _ = writeln!(std::io::stderr(), "{damage}: resuming from {used}");
    }
    for (what, found, wanted) in [
        ("seed", state.seed, seed),
        ("batch size", state.batch, batch),
    ] {
        if found != wanted {
            return Err(CheckpointError::OtherRun {
                path,
                what,
                found,
                wanted,
            });
        }
    }
    state.restarts += 1;
    Ok(state)
}
