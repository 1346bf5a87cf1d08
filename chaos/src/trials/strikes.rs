//! Fault injection of the trials, each fault with its repair.

use std::fs;
use std::path::{Path, PathBuf};

use muster_model::event::{Event, EventKind};
use muster_proto::v1;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::cluster::{Direction, processes_of};
use crate::demo::timeline::Voice;
use crate::trials::options::{BEFORE_RETURN, DISK_FULL, SHORT_CUT};
use crate::trials::stage::{Stage, Whereabouts};
use crate::trials::{Trial, TrialError, jobs};

/// File of a checkpoint that holds the state, as the trainer writes it.
const STATE_FILE: &str = "state.bin";
/// Rounds in which the processes of a host are stopped: one may have forked meanwhile.
const FREEZE_ROUNDS: usize = 3;

impl Stage<'_> {
    /// Injects and repairs the fault of the trial; returns once that is done.
    pub(super) async fn break_and_repair(&mut self, from: usize) -> Result<(), TrialError> {
        let place = self.rank_0().await?;
        match self.trial {
            Trial::AgentKilled => self.kill_agent(&place, from).await,
            Trial::AgentUpgraded => self.upgrade_agent(&place),
            Trial::SupervisorKilled => self.kill_supervisor(&place),
            Trial::GpuFaulted => self.break_gpu(&place).await,
            Trial::ShortCut(direction) => self.cut_shortly(&place, direction).await,
            Trial::LongCut(direction) => self.cut_long(&place, direction, from).await,
            Trial::HostFrozen => self.freeze(&place, from).await,
            Trial::LeaderKilledInPreemption => self.kill_leader(from).await,
            Trial::CheckpointDamaged => {
                self.damage_newest_checkpoint()?;
                self.kill_supervisor(&place)
            }
            Trial::CheckpointDiskFull => self.fill_disk(0).await,
            Trial::HostDiskFull => self.fill_disk(place.worker).await,
            Trial::StopIgnored => self.submit_urgent().await,
        }
    }

    async fn kill_agent(&mut self, place: &Whereabouts, from: usize) -> Result<(), TrialError> {
        self.say(
            Voice::Fault,
            &format!("kill -9 of the agent of {}", place.host),
        );
        self.cluster.kill_agent(place.worker)?;
        let host = place.host.clone();
        let silent = move |event: &Event| {
            matches!(&event.kind,
                EventKind::HostHealthChanged { name, .. } if *name == host)
        };
        self.await_event("the host's silence", from, silent).await?;
        Ok(self.cluster.start_worker(place.worker)?)
    }

    fn upgrade_agent(&mut self, place: &Whereabouts) -> Result<(), TrialError> {
        let (program, which) = match &self.options.previous {
            Some(previous) => {
                let before = previous.display();
                (
                    self.options.binary.clone(),
                    format!("{before} by this program"),
                )
            }
            None => (self.copy_of_programs()?, "by another program".to_owned()),
        };
        let host = &place.host;
        self.say(
            Voice::Fault,
            &format!("the agent of {host} is replaced: {which}"),
        );
        Ok(self.cluster.upgrade_worker(place.worker, &program)?)
    }

    /// Copy of the programs in a separate folder.
    fn copy_of_programs(&self) -> Result<PathBuf, TrialError> {
        let folder = self.cluster.folder().join("upgraded");
        let failed = || TrialError::io("copying the programs");
        fs::create_dir_all(&folder).map_err(failed())?;
        let binary = &self.options.binary;
        let supervisor = binary.with_file_name("muster-supervise");
        for program in [binary, &supervisor] {
            let copy = folder.join(program.file_name().unwrap_or_default());
            // A hard link where the file system supports it, else a copy.
            if program.is_file() && fs::hard_link(program, &copy).is_err() {
                fs::copy(program, &copy).map_err(failed())?;
            }
        }
        Ok(folder.join(binary.file_name().unwrap_or_default()))
    }

    fn kill_supervisor(&self, place: &Whereabouts) -> Result<(), TrialError> {
        let folder = &self.cluster.workers()[place.worker].folder;
        let task = self.process_of_rank_0(folder)?;
        let supervisor = parent_of(task)?;
        self.say(
            Voice::Fault,
            &format!("kill -9 of the supervisor of rank 0 on {}", place.host),
        );
        kill_process(supervisor, Signal::KILL)
            .map_err(|error| TrialError::io("killing a supervisor")(error.into()))
    }

    async fn break_gpu(&self, place: &Whereabouts) -> Result<(), TrialError> {
        let Whereabouts { host, gpu, .. } = place;
        self.say(Voice::Fault, &format!("XID 48 of {gpu} on {host}"));
        let fault = v1::GpuFault {
            signal: "xid-48".to_owned(),
            detail: "a double bit error (trial)".to_owned(),
        };
        let injected = self.client.inject_gpu_fault(host, gpu, Some(fault)).await;
        Ok(injected?)
    }

    fn process_of_rank_0(&self, folder: &Path) -> Result<Pid, TrialError> {
        let wanted = [
            format!("MUSTER_JOB_ID={}", self.training),
            "RANK=0".to_owned(),
        ];
        let found = processes_of(folder).into_iter().find(|pid| {
            let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
            let environment = environment.unwrap_or_default();
            let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
            wanted.iter().all(|it| variables.contains(&it.as_bytes()))
        });
        found.ok_or_else(|| TrialError::Odd("rank 0 has no process".to_owned()))
    }

    async fn cut_shortly(
        &self,
        place: &Whereabouts,
        direction: Direction,
    ) -> Result<(), TrialError> {
        self.say(Voice::Fault, &cut_words(&place.host, direction));
        self.cluster.cut_worker(place.worker, direction)?;
        sleep(SHORT_CUT).await;
        self.say(Voice::Stage, &format!("{} is reconnected", place.host));
        Ok(self.cluster.heal_worker(place.worker, direction)?)
    }

    async fn cut_long(
        &self,
        place: &Whereabouts,
        direction: Direction,
        from: usize,
    ) -> Result<(), TrialError> {
        self.say(Voice::Fault, &cut_words(&place.host, direction));
        self.cluster.cut_worker(place.worker, direction)?;
        self.await_training_elsewhere(&place.host, from).await?;
        self.say(Voice::Stage, &format!("{} is reconnected", place.host));
        Ok(self.cluster.heal_worker(place.worker, direction)?)
    }

    async fn freeze(&self, place: &Whereabouts, from: usize) -> Result<(), TrialError> {
        let folder = &self.cluster.workers()[place.worker].folder;
        let mut count = 0;
        for _ in 0..FREEZE_ROUNDS {
            count = signal_all(folder, Signal::STOP);
        }
        self.say(
            Voice::Fault,
            &format!("{} is paused: {count} processes", place.host),
        );
        self.await_training_elsewhere(&place.host, from).await?;
        signal_all(folder, Signal::CONT);
        self.say(Voice::Stage, &format!("{} is resumed", place.host));
        Ok(())
    }

    /// Waits until all ranks run on other hosts than this one, and a little longer.
    async fn await_training_elsewhere(&self, host: &str, from: usize) -> Result<(), TrialError> {
        let job = self.training;
        let mut position = from;
        loop {
            let running = move |event: &Event| {
                matches!(&event.kind,
                    EventKind::AttemptRunning { job: of, .. } if *of == job)
            };
            self.await_event("resumption of the training", position, running)
                .await?;
            position = self.observed.here();
            let consistency = v1::Consistency::Linearizable;
            let detail = self.client.get_job(job, 1, consistency).await?;
            let attempt = detail.units.first().and_then(|it| it.attempt.as_ref());
            let is_elsewhere =
                attempt.is_some_and(|it| it.tasks.iter().all(|task| task.host != host));
            if is_elsewhere || detail.is_finished() {
                break;
            }
        }
        sleep(BEFORE_RETURN).await;
        Ok(())
    }

    async fn kill_leader(&mut self, from: usize) -> Result<(), TrialError> {
        self.submit_urgent().await?;
        let job = self.training;
        let stopping = move |event: &Event| {
            matches!(&event.kind,
                EventKind::AttemptStopping { job: of, .. } if *of == job)
        };
        self.await_event("the preemption", from, stopping).await?;
        let from = self.observed.here();
        let status = self.client.status(v1::Consistency::Stale).await?;
        let leader = status.leader_id.and_then(|id| usize::try_from(id).ok());
        let Some(leader) = leader.and_then(|id| id.checked_sub(1)) else {
            return Err(TrialError::Odd("there is no leader".to_owned()));
        };
        self.say(Voice::Fault, "kill -9 of the leader during the preemption");
        self.cluster.kill_replica(leader)?;
        let began = |event: &Event| matches!(event.kind, EventKind::LeaderBegan { .. });
        self.await_event("the next leader", from, began).await?;
        Ok(self.cluster.start_replica(leader)?)
    }

    async fn submit_urgent(&self) -> Result<(), TrialError> {
        let spec = jobs::urgent(&self.options.trainer, &self.traces);
        let job = self.client.submit_job(spec).await?.job;
        self.say(
            Voice::Fault,
            &format!("job {job} of a higher priority needs the training's GPUs"),
        );
        Ok(())
    }

    fn damage_newest_checkpoint(&self) -> Result<(), TrialError> {
        let job = self.training;
        let newest = self.observed.newest_before(tokio::time::Instant::now(), |event| {
            matches!(&event.kind, EventKind::CheckpointCommitted { job: of, .. } if *of == job)
        });
        let Some(EventKind::CheckpointCommitted { path, step, .. }) =
            newest.map(|seen| seen.event.kind)
        else {
            return Err(TrialError::Odd("there is no checkpoint".to_owned()));
        };
        let file = Path::new(&path).join(STATE_FILE);
        let failed = || TrialError::io(format!("damaging {}", file.display()));
        let mut bytes = fs::read(&file).map_err(failed())?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).map_err(failed())?;
        self.say(
            Voice::Fault,
            &format!("one bit of the checkpoint of step {step} is flipped"),
        );
        Ok(())
    }

    async fn fill_disk(&self, disk: usize) -> Result<(), TrialError> {
        self.disks[disk].fill()?;
        self.say(Voice::Fault, self.trial.fault());
        sleep(DISK_FULL).await;
        self.disks[disk].relieve()?;
        self.say(Voice::Stage, "the disk has space again");
        Ok(())
    }
}

fn cut_words(host: &str, direction: Direction) -> String {
    match direction {
        Direction::Both => format!("{host} is cut off, both ways"),
        Direction::Out => format!("packets from {host} are lost"),
        Direction::In => format!("packets to {host} are lost"),
    }
}

/// Sends a signal to every process of a folder; returns their number.
fn signal_all(folder: &Path, signal: Signal) -> usize {
    let processes = processes_of(folder);
    let sent = processes.iter().filter(|pid| {
        // A process that has ended meanwhile needs no signal.
        kill_process(**pid, signal).is_ok()
    });
    sent.count()
}

fn parent_of(process: Pid) -> Result<Pid, TrialError> {
    let file = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = fs::read_to_string(&file).map_err(TrialError::io(format!("reading {file}")))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent = parent.and_then(|text| Pid::from_raw(text.trim().parse().ok()?));
    parent.ok_or_else(|| TrialError::Odd(format!("{file} names no parent")))
}
