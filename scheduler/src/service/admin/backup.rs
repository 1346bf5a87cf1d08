//! `AdminService.SaveSnapshot`: the state as a backup file, streamed in pieces at the client's pace.

use std::io::{self, Write};

use bytes::{Bytes, BytesMut};
use muster_engine::state::State;
use muster_proto::{status, v1};
use muster_raft_store::recovery::backup::{BackupMetadata, CapturedState};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::service::context::Context;
use crate::service::gate::Caller;
use crate::service::watch::until_stopped::{Messages, until_stopped};

/// Bytes per piece: small compared to the largest message, large compared to the overhead of a message.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces buffered for the client.
const PIECES_AHEAD: usize = 4;

/// Stream of a backup to a client.
pub(crate) type Saved = Messages<v1::SaveSnapshotResponse>;

/// Refuses callers that are not admins of the cluster; `act` completes "may not". Without authentication, the
/// settings list the admins.
pub(crate) fn require_admin(
    context: &Context,
    caller: &Caller,
    author: &str,
    act: &str,
) -> Result<(), Status> {
    let by_role = context.handle.with_state(|state| caller.is_admin(state));
    if by_role.unwrap_or_else(|| context.settings.borrow().admins.contains(author)) {
        return Ok(());
    }
    let message = format!("`{author}` may not {act}: only the cluster's admins may");
    let code = Code::PermissionDenied;
    let by_settings = [(status::ADMINS_BY_SETTINGS, "true".to_owned())];
    let metadata: &[(&str, String)] = if by_role.is_none() { &by_settings } else { &[] };
    Err(status::error(code, "NOT_YOURS", &message, metadata))
}

/// Header of a backup that this replica takes now.
pub(crate) fn about(context: &Context, captured: &CapturedState<State>) -> BackupMetadata {
    BackupMetadata {
        cluster_id: context.config.cluster_id.clone(),
        replica_id: context.config.replica_id.get(),
        time_ms: context.handle.now_ms().max(captured.state().time.0),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Streams a backup; the permits are held until it is sent or the client has gone.
pub(crate) fn stream(context: &Context, places: [OwnedSemaphorePermit; 2]) -> Saved {
    let captured = context.handle.capture();
    let about = about(context, &captured);
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces {
            sender: &sender,
            piece: BytesMut::with_capacity(PIECE_BYTES),
        };
        let sent = captured.write_backup(&mut pieces, &about, None);
        drop(places);
        // Errors are reported to the client, unless the client has gone.
        if let Err(error) = sent
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let status = Status::internal(format!("cannot serialize the state: {error}"));
            drop(sender.blocking_send(Err(status)));
        }
    });
    until_stopped(ReceiverStream::new(receiver), context.stop.clone())
}

/// Writer that sends bytes in pieces.
struct Pieces<'a> {
    sender: &'a mpsc::Sender<Result<v1::SaveSnapshotResponse, Status>>,
    piece: BytesMut,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES - self.piece.len();
        let taken = room.min(bytes.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk: Bytes = self.piece.split().freeze();
        self.piece.reserve(PIECE_BYTES);
        if chunk.is_empty() {
            return Ok(());
        }
        self.sender
            .blocking_send(Ok(v1::SaveSnapshotResponse { chunk }))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
