//! Export of the cluster's whole state as bytes.

use muster_proto::v1;
use muster_proto::v1::export_state_response::Part;
use tonic::{Code, Status, Streaming};

use crate::calls::Operation;
use crate::client::{Client, cluster};
use crate::error::{ClientError, FailedAttempt};
use crate::transport::retry::{FailureClass, classify};

/// Completes the sentence "cannot ...".
const OPERATION: &str = "export the cluster's state";
/// Most attempts: an interrupted export restarts, at another replica if one is known.
const TRIES_MAX: usize = 3;
/// Largest accepted state.
const STATE_BYTES_MAX: u64 = 8 << 30;

/// An exported state.
#[derive(Clone, Debug)]
pub struct Export {
    /// Head of the export, which identifies the state.
    pub head: v1::ExportHead,
    /// Bytes of a snapshot, as replicas write them; reading them takes the state machine (`muster_log::read_state`).
    pub bytes: Vec<u8>,
}

/// Progress of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportProgress {
    /// Bytes received.
    pub done_bytes: u64,
    /// Total bytes.
    pub size_bytes: u64,
}

/// End of an unsuccessful attempt.
enum ExportFailure {
    /// No other attempt would help.
    Final(ClientError),
    /// The connection broke, or the replica stopped.
    Again(FailedAttempt),
}

impl Client {
    /// Exports the whole state at one revision, without the values of environment variables, events and
    /// answers that are kept for repeated requests. An interrupted export restarts.
    ///
    /// # Errors
    /// Those of a call. [`ClientError::Refused`] with code `Unimplemented` if the cluster is too old to
    /// export.
    pub async fn export_state(
        &self,
        progress: &mut dyn FnMut(ExportProgress),
    ) -> Result<Export, ClientError> {
        let mut tried = Vec::new();
        while tried.len() < TRIES_MAX {
            match self.export_once(progress).await {
                Ok(export) => return Ok(export),
                Err(ExportFailure::Final(error)) => return Err(error),
                Err(ExportFailure::Again(failed)) => {
                    self.roster().unset_leader(&failed.address);
                    tracing::debug!(replica = %failed.address, cause = %failed.cause, "an export was interrupted");
                    tried.push(failed);
                }
            }
        }
        Err(ClientError::Unreachable {
            operation: OPERATION,
            tried,
        })
    }

    async fn export_once(
        &self,
        progress: &mut dyn FnMut(ExportProgress),
    ) -> Result<Export, ExportFailure> {
        let request = v1::ExportStateRequest {
            consistency: v1::Consistency::Linearizable.into(),
        };
        let operation: Operation = self.operation(OPERATION);
        let opened = self.open_stream(operation, |channel| async move {
            cluster(channel).export_state(request).await
        });
        let (mut stream, address) = opened.await.map_err(ExportFailure::Final)?;
        let head = match self.next(&mut stream, &address).await? {
            Some(Part::Head(head)) => head,
            _ => return Err(malformed("it does not begin with a head")),
        };
        if head.size_bytes > STATE_BYTES_MAX {
            return Err(malformed(&format!(
                "{} bytes are over the limit of {STATE_BYTES_MAX} (STATE_BYTES_MAX)",
                head.size_bytes
            )));
        }
        let mut bytes = Vec::new();
        while let Some(part) = self.next(&mut stream, &address).await? {
            let Part::Chunk(chunk) = part else {
                return Err(malformed("it has two heads"));
            };
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > head.size_bytes {
                return Err(malformed("it is longer than announced"));
            }
            progress(ExportProgress {
                done_bytes: bytes.len() as u64,
                size_bytes: head.size_bytes,
            });
        }
        if (bytes.len() as u64) < head.size_bytes {
            let cause = "the export ended early".to_owned();
            return Err(ExportFailure::Again(FailedAttempt::new(address, cause)));
        }
        Ok(Export { head, bytes })
    }

    /// Returns the next part; none at the end.
    async fn next(
        &self,
        stream: &mut Streaming<v1::ExportStateResponse>,
        address: &str,
    ) -> Result<Option<Part>, ExportFailure> {
        let limit = self.config().deadline;
        let Ok(message) = tokio::time::timeout(limit, stream.message()).await else {
            let cause = format!("no more data within {} s", limit.as_secs_f64());
            let address = address.to_owned();
            return Err(ExportFailure::Again(FailedAttempt::new(address, cause)));
        };
        match message {
            Ok(None) => Ok(None),
            Ok(Some(response)) => response
                .part
                .map(Some)
                .ok_or_else(|| malformed("a part has an unknown kind")),
            Err(status) => Err(broken(&status, address)),
        }
    }
}

fn broken(status: &Status, address: &str) -> ExportFailure {
    let cause = match classify(status) {
        FailureClass::Final(refusal) if refusal.code != Code::Internal => {
            return ExportFailure::Final(ClientError::Refused {
                operation: OPERATION,
                refusal,
            });
        }
        FailureClass::Final(refusal) => refusal.message,
        FailureClass::Redirect { leader } => format!("it does not lead, {leader} does"),
        FailureClass::Again { cause, .. } => cause,
    };
    let address = address.to_owned();
    ExportFailure::Again(FailedAttempt::new(address, cause))
}

fn malformed(detail: &str) -> ExportFailure {
    ExportFailure::Final(ClientError::Malformed {
        operation: OPERATION,
        detail: detail.to_owned(),
    })
}
