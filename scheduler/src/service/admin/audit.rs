//! `AdminService.ReadAuditLog`: existing and new records of this replica's audit log.

use muster_proto::v1;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::audit_log::{AuditLog, Record};
use crate::service::context::Context;
use crate::service::watch::until_stopped::{Messages, until_stopped};

/// Records per message.
const RECORDS_PER_MESSAGE: usize = 512;
/// Messages buffered for the client.
const MESSAGES_AHEAD: usize = 4;

/// Stream of records to a client.
pub(crate) type Records = Messages<v1::ReadAuditLogResponse>;

type Sender = mpsc::Sender<Result<v1::ReadAuditLogResponse, Status>>;

/// Streams records; the permit is held until they are sent or the client has gone.
pub(crate) async fn stream(
    context: &Context,
    request: v1::ReadAuditLogRequest,
    permit: OwnedSemaphorePermit,
) -> Records {
    let log = context.audit.clone();
    log.sync().await;
    let (sender, receiver) = mpsc::channel(MESSAGES_AHEAD);
    tokio::spawn(async move {
        send_records(log, request, &sender).await;
        drop(permit);
    });
    until_stopped(ReceiverStream::new(receiver), context.stop.clone())
}

/// Sends the existing records, and new ones if requested.
async fn send_records(log: AuditLog, request: v1::ReadAuditLogRequest, sender: &Sender) {
    let mut after = request.after_sequence;
    let mut newest = log.newest();
    loop {
        newest.mark_unchanged();
        let (read, wanted, to) = (log.clone(), request.clone(), sender.clone());
        let reading = tokio::task::spawn_blocking(move || send(&read, after, &wanted, &to));
        match reading.await {
            Ok(Some(last)) => after = after.max(last),
            // The client has gone, or has received the error.
            Ok(None) | Err(_) => return,
        }
        if !request.follow {
            return;
        }
        let more = tokio::select! {
            changed = newest.changed() => changed.is_ok(),
            () = sender.closed() => false,
        };
        if !more {
            return;
        }
    }
}

/// Sends the requested records after `after`; returns the last one examined, or `None` if the stream cannot
/// continue.
fn send(
    log: &AuditLog,
    after: u64,
    wanted: &v1::ReadAuditLogRequest,
    sender: &Sender,
) -> Option<u64> {
    let mut records: Vec<v1::AuditRecord> = Vec::new();
    let mut last = after;
    let mut is_gone = false;
    let mut take = |record: Record| {
        last = record.sequence;
        let is_wanted = record.time_ms >= wanted.since_ms
            && (wanted.user.is_empty() || wanted.user == record.user);
        if is_wanted {
            records.push(record.into());
        }
        if records.len() >= RECORDS_PER_MESSAGE {
            is_gone = !deliver(sender, std::mem::take(&mut records));
        }
        !is_gone
    };
    let read = log.read_after(after, &mut take);
    if let Err(error) = read {
        let status = Status::internal(format!("cannot read the audit log: {error}"));
        drop(sender.blocking_send(Err(status)));
        return None;
    }
    if !records.is_empty() {
        is_gone = is_gone || !deliver(sender, records);
    }
    (!is_gone).then_some(last)
}

fn deliver(sender: &Sender, records: Vec<v1::AuditRecord>) -> bool {
    let message = v1::ReadAuditLogResponse { records };
    sender.blocking_send(Ok(message)).is_ok()
}
