//! The helper's side: a backend behind pipes.
//!
//! Health changes, memory and sensors are queried on a thread each, so that a slow sweep of one does not
//! delay the others.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use muster_model::ids::GpuUuid;

use crate::gpu::helper::link::next_line;
use crate::gpu::helper::messages::{Answer, HelperRequest, Opened, Refusal, Reply, Request};
use crate::gpu::{GpuBackend, GpuError};
use crate::limits::{GPU_MESSAGE_BYTES_MAX, GPU_QUESTIONS_MAX};

/// Answers requests on standard input until it is closed, which means that the agent is gone or needs no
/// more.
///
/// # Errors
/// Of the pipes, and of a first request that is not to open the backend.
pub(super) fn serve(
    open: impl FnOnce(BTreeMap<GpuUuid, u64>) -> Result<Box<dyn GpuBackend>, GpuError>,
) -> io::Result<()> {
    let mut lines = io::stdin().lock();
    let Some(first) = next_request(&mut lines)? else {
        return Ok(());
    };
    let HelperRequest::Open { ecc_counts } = first.question else {
        return Err(io::Error::other(
            "the first request must be to open the GPUs",
        ));
    };
    let backend = match open(ecc_counts.into_iter().collect()) {
        Ok(backend) => backend,
        Err(error) => return answer(first.id, Err(error)),
    };
    let desks = RequestThreads::start(backend, first.id)?;
    while let Some(request) = next_request(&mut lines)? {
        desks.dispatch(request)?;
    }
    Ok(())
}

/// The threads that query the backend.
struct RequestThreads {
    changes: SyncSender<Request>,
    memory: SyncSender<Request>,
    sensors: SyncSender<Request>,
}

impl RequestThreads {
    fn start(mut backend: Box<dyn GpuBackend>, opening: u64) -> io::Result<Self> {
        let (memory, mut sensors) = (backend.memory(), backend.sensors());
        answer(opening, Ok(Reply::Opened(opened(&*backend))))?;
        Ok(Self {
            changes: start_request_thread("changes", move |question| match question {
                HelperRequest::Observe { wait_ms, orders } => {
                    let injector = backend.injector();
                    for order in orders {
                        // Fails if the queue is full, which holds as many orders as an agent may send.
                        injector.try_send(order).map_err(|error| {
                            GpuError::Refused(format!("an order cannot be queued: {error}"))
                        })?;
                    }
                    let changes = backend.observe(Duration::from_millis(wait_ms))?;
                    let xids = backend.take_xids();
                    let ecc_counts = backend.ecc_counts().into_iter().collect();
                    Ok(Reply::Observed {
                        changes,
                        xids,
                        ecc_counts,
                    })
                }
                other => Err(unexpected(&other)),
            })?,
            memory: start_request_thread("memory", move |question| match question {
                HelperRequest::Memory { gpu } => {
                    let (used_mib, by) = memory.used(gpu)?;
                    Ok(Reply::Memory { used_mib, by })
                }
                other => Err(unexpected(&other)),
            })?,
            sensors: start_request_thread("sensors", move |question| match question {
                HelperRequest::Sensors { gpu, now } => sensors.read(&gpu, now).map(Reply::Sensors),
                other => Err(unexpected(&other)),
            })?,
        })
    }

    /// Passes a request to the thread of its kind.
    fn dispatch(&self, request: Request) -> io::Result<()> {
        let desk = match &request.question {
            HelperRequest::Observe { .. } => &self.changes,
            HelperRequest::Memory { .. } => &self.memory,
            HelperRequest::Sensors { .. } => &self.sensors,
            HelperRequest::Open { .. } => {
                let id = request.id;
                return answer(id, Err(unexpected(&request.question)));
            }
        };
        let ended = |_| io::Error::other("a thread that queries the GPUs has ended");
        desk.send(request).map_err(ended)
    }
}

/// Starts a thread that answers one kind of request.
fn start_request_thread(
    name: &str,
    mut find: impl FnMut(HelperRequest) -> Result<Reply, GpuError> + Send + 'static,
) -> io::Result<SyncSender<Request>> {
    let (sender, requests) = sync_channel::<Request>(GPU_QUESTIONS_MAX);
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            for request in requests {
                if let Err(error) = answer(request.id, find(request.question)) {
                    tracing::warn!(%error, "the agent no longer reads answers");
                    return;
                }
            }
        })?;
    Ok(sender)
}

fn opened(backend: &dyn GpuBackend) -> Opened {
    let addresses = backend.pci_addresses().into_iter();
    Opened {
        gpus: backend.inventory().to_vec(),
        pci_addresses: addresses
            .map(|(gpu, address)| (gpu, address.to_string()))
            .collect(),
        device_numbers: backend.device_numbers().into_iter().collect(),
        ecc_counts: backend.ecc_counts().into_iter().collect(),
        is_simulated: backend.is_simulated(),
    }
}

fn unexpected(question: &HelperRequest) -> GpuError {
    GpuError::Refused(format!("unexpected request: {question:?}"))
}

fn next_request(lines: &mut impl BufRead) -> io::Result<Option<Request>> {
    let Some(line) = next_line(lines, GPU_MESSAGE_BYTES_MAX)? else {
        return Ok(None);
    };
    Ok(Some(serde_json::from_slice(&line)?))
}

/// Writes an answer in one piece.
fn answer(id: u64, result: Result<Reply, GpuError>) -> io::Result<()> {
    let result = result.map_err(Refusal::from);
    let mut line = serde_json::to_vec(&Answer { id, result })?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}
