//! Fake worker that starts nothing and reports that it did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::leader_message::Kind as FromLeader;
use muster_proto::v1::worker_message::Kind as ToLeader;
use muster_proto::v1::worker_service_client::WorkerServiceClient;
use muster_proto::v1::worker_task_phase::{Kind as Phase, Plain};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Endpoint;

use crate::TIMINGS;

/// Registration and behaviour of a worker.
#[derive(Clone)]
pub(crate) struct WorkerOptions {
    pub(crate) name: String,
    pub(crate) worker_id: String,
    pub(crate) incarnation: u64,
    pub(crate) first_gpu: u32,
    pub(crate) gpus: u32,
}

impl WorkerOptions {
    /// The `number`th host, with 8 GPUs.
    pub(crate) fn host(number: u32) -> Self {
        Self {
            name: format!("node{number}"),
            worker_id: format!("00000000-0000-0000-0000-{number:012}"),
            incarnation: 1,
            first_gpu: number * 100,
            gpus: 8,
        }
    }

    fn registration(&self) -> v1::HostRegistration {
        let gpu = |index| v1::GpuDescription {
            uuid: format!("GPU-00000000-0000-0000-0000-{:012}", self.first_gpu + index),
            index,
            model: "H100".to_owned(),
            memory_mib: 80_000,
        };
        v1::HostRegistration {
            name: self.name.clone(),
            address: "127.0.0.1".to_owned(),
            worker_id: self.worker_id.clone(),
            incarnation: self.incarnation,
            boot_id: "boot".to_owned(),
            gpus: (0..self.gpus).map(gpu).collect(),
            cpus_milli: 64_000,
            memory_mib: 512_000,
            labels: BTreeMap::default().into_iter().collect(),
            reported: None,
        }
    }
}

/// Observations of a worker.
#[derive(Default)]
pub(crate) struct Seen {
    /// Newest leadership it was welcomed by.
    pub(crate) leader: u64,
    /// Times it was welcomed.
    pub(crate) welcomes: u32,
    /// Newest acknowledged heartbeat of the stream.
    pub(crate) acknowledged: u64,
    /// Tasks it holds: epoch and phase.
    pub(crate) tasks: BTreeMap<(u64, u32), (u64, Phase)>,
    /// Its last refusal.
    pub(crate) rejected: Option<v1::Rejected>,
    /// Reason of the error that ended its last stream.
    pub(crate) ended: Option<String>,
    /// Faults of its GPUs.
    pub(crate) faults: BTreeMap<String, v1::GpuFault>,
    units: BTreeMap<(u64, u32), u32>,
    desired_revision: u64,
    /// Tasks exit at once with this code.
    exit_code: Option<i32>,
}

/// A fake worker; it dies silently when it is dropped.
pub(crate) struct FakeWorker {
    pub(crate) seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for FakeWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeWorker {
    /// Connects to any replica that accepts it, with retries.
    pub(crate) fn start(options: WorkerOptions, addresses: Vec<String>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let changed = Arc::new(Notify::new());
        let session = Session {
            options,
            seen: Arc::clone(&seen),
            changed: Arc::clone(&changed),
        };
        let task = tokio::spawn(async move {
            for address in addresses.iter().cycle() {
                let ended = session.connect(address).await;
                if let Err(status) = ended {
                    let reason = ErrorReport::of(&status).reason;
                    session.seen.lock().unwrap().ended = Some(reason);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self {
            seen,
            changed,
            task,
        }
    }

    /// Lets all current and later tasks exit with this code.
    pub(crate) fn finish_tasks(&self, code: i32) {
        let mut seen = self.seen.lock().unwrap();
        seen.exit_code = Some(code);
        let exited = || {
            Phase::Exited(v1::Exit {
                code: Some(code),
                ..v1::Exit::default()
            })
        };
        seen.tasks.values_mut().for_each(|task| task.1 = exited());
        self.changed.notify_one();
    }

    /// Reads the observations.
    pub(crate) fn look<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.seen.lock().unwrap())
    }
}

struct Session {
    options: WorkerOptions,
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
}

impl Session {
    async fn connect(&self, address: &str) -> Result<(), Status> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .unwrap()
            .connect_timeout(Duration::from_millis(200));
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let (outgoing, receiver) = mpsc::channel(16);
        let leader = self.seen.lock().unwrap().leader;
        let hello = v1::Hello {
            registration: Some(self.options.registration()),
            leadership_epoch: leader,
            version: "test".to_owned(),
            can_hold: false,
        };
        send(&outgoing, ToLeader::Hello(hello)).await;
        let mut client = WorkerServiceClient::new(channel);
        let mut incoming = client
            .session(ReceiverStream::new(receiver))
            .await?
            .into_inner();
        let mut heartbeats = tokio::time::interval(Duration::from_millis(TIMINGS.heartbeat_ms));
        let (mut sequence, mut is_welcome) = (0, false);
        loop {
            tokio::select! {
                message = incoming.message() => match message? {
                    Some(message) => {
                        is_welcome |= matches!(message.kind, Some(FromLeader::Welcome(_)));
                        self.take(message.kind.unwrap(), &outgoing);
                    }
                    None => return Ok(()),
                },
                _ = heartbeats.tick(), if is_welcome => {
                    sequence += 1;
                    send(&outgoing, ToLeader::Heartbeat(self.heartbeat(sequence))).await;
                }
                () = self.changed.notified(), if is_welcome => {
                    sequence += 1;
                    send(&outgoing, ToLeader::Heartbeat(self.heartbeat(sequence))).await;
                }
            }
        }
    }

    fn take(&self, message: FromLeader, outgoing: &mpsc::Sender<v1::WorkerMessage>) {
        let mut seen = self.seen.lock().unwrap();
        match message {
            FromLeader::Welcome(welcome) => {
                seen.leader = welcome.leadership_epoch;
                seen.welcomes += 1;
                seen.acknowledged = 0;
            }
            FromLeader::Rejected(rejected) => seen.rejected = Some(rejected),
            FromLeader::Desired(desired) => {
                seen.obey(desired);
                self.changed.notify_one();
            }
            FromLeader::HeartbeatAck(ack) => seen.acknowledged = ack.sequence,
            FromLeader::LogRequest(request) => {
                tokio::spawn(print(request, outgoing.clone()));
            }
            FromLeader::LogCancel(_)
            | FromLeader::Exec(_)
            | FromLeader::Replicas(_)
            | FromLeader::Debug(_) => {}
            FromLeader::InjectFault(inject) => {
                let what = inject.injection.and_then(|injection| injection.what);
                let Some(v1::injection::What::Signal(signal)) = what else {
                    unreachable!("only signals can be injected here: {what:?}")
                };
                seen.faults.remove(&signal.gpu);
                seen.faults
                    .extend(signal.fault.map(|fault| (signal.gpu, fault)));
                let result = v1::InjectResult {
                    id: inject.id,
                    error: None,
                };
                let kind = Some(ToLeader::InjectResult(result));
                outgoing.try_send(v1::WorkerMessage { kind }).unwrap();
                self.changed.notify_one();
            }
        }
    }

    fn heartbeat(&self, sequence: u64) -> v1::Heartbeat {
        let seen = self.seen.lock().unwrap();
        let tasks = seen
            .tasks
            .iter()
            .map(|((job_id, task), (epoch, phase))| v1::TaskStatus {
                job_id: *job_id,
                task: *task,
                unit: seen.units[&(*job_id, *task)],
                epoch: *epoch,
                phase: Some(v1::WorkerTaskPhase {
                    kind: Some(phase.clone()),
                }),
                ..v1::TaskStatus::default()
            });
        let faults = &seen.faults;
        let gpus = self
            .options
            .registration()
            .gpus
            .into_iter()
            .map(|gpu| v1::GpuStatus {
                health: Some(v1::GpuHealth {
                    fault: faults.get(&gpu.uuid).cloned(),
                }),
                uuid: gpu.uuid,
            });
        v1::Heartbeat {
            sequence,
            acknowledged: seen.acknowledged,
            leadership_epoch: seen.leader,
            desired_revision: seen.desired_revision,
            status: Some(v1::WorkerStatus {
                tasks: tasks.collect(),
                gpus: gpus.collect(),
                ..v1::WorkerStatus::default()
            }),
        }
    }
}

impl Seen {
    fn obey(&mut self, desired: v1::DesiredState) {
        self.desired_revision = desired.revision;
        let wanted: BTreeMap<(u64, u32), v1::TaskAssignment> = desired
            .tasks
            .into_iter()
            .filter(|task| {
                let end = [
                    v1::TaskPhase::Exited,
                    v1::TaskPhase::Gone,
                    v1::TaskPhase::Fenced,
                ];
                !end.contains(&task.acknowledged())
            })
            .map(|task| ((task.job_id, task.task), task))
            .collect();
        self.tasks.retain(|key, _| wanted.contains_key(key));
        for (key, task) in wanted {
            self.units.insert(key, task.unit);
            let exit = |code| {
                Phase::Exited(v1::Exit {
                    code: Some(code),
                    ..v1::Exit::default()
                })
            };
            let code = if task.stop.is_some() {
                Some(143)
            } else {
                self.exit_code
            };
            let phase = code.map_or(Phase::Running(Plain {}), exit);
            let held = self
                .tasks
                .entry(key)
                .or_insert_with(|| (task.epoch, phase.clone()));
            if held.0 != task.epoch || task.stop.is_some() {
                *held = (task.epoch, phase);
            }
        }
    }
}

async fn send(to: &mpsc::Sender<v1::WorkerMessage>, kind: ToLeader) {
    // A broken stream shows at its other end.
    drop(to.send(v1::WorkerMessage { kind: Some(kind) }).await);
}

/// Bytes printed by every task.
pub(crate) const PRINTED_BYTES: u64 = 200_000;

/// Sends everything from the requested position, as fast as the stream takes it.
async fn print(request: v1::LogRequest, outgoing: mpsc::Sender<v1::WorkerMessage>) {
    const CHUNK_BYTES: u64 = 1_000;
    let mut offset = match request.start {
        Some(v1::log_request::Start::OffsetBytes(offset)) => offset,
        Some(v1::log_request::Start::TailLines(_) | v1::log_request::Start::Position(_)) | None => {
            0
        }
    };
    loop {
        let end = (offset + CHUNK_BYTES).min(PRINTED_BYTES.max(offset));
        let data: Vec<u8> = (offset..end).map(printed_at).collect();
        let chunk = v1::LogChunk {
            id: request.id,
            offset_bytes: offset,
            data: data.into(),
            end: end >= PRINTED_BYTES,
            ..v1::LogChunk::default()
        };
        let is_last = chunk.end;
        send(&outgoing, ToLeader::LogChunk(chunk)).await;
        if is_last {
            return;
        }
        offset = end;
    }
}

/// The byte that every task has printed at a position.
pub(crate) fn printed_at(position: u64) -> u8 {
    u8::try_from(position % 251).unwrap()
}
