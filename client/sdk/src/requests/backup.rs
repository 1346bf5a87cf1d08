//! Download of a backup file.

use bytes::Bytes;
use muster_proto::v1;
use tonic::Streaming;

use crate::client::{Client, admin};
use crate::error::{ClientError, FailedAttempt};
use crate::transport::retry::{FailureClass, classify};

/// Completes the sentence "cannot ...".
const OPERATION: &str = "save a snapshot";

/// A backup file being received from a replica. Every part of it carries a digest, which the writer of the
/// file checks.
#[derive(Debug)]
pub struct SavedSnapshot {
    parts: Streaming<v1::SaveSnapshotResponse>,
    address: String,
    part_timeout: std::time::Duration,
}

impl Client {
    /// Requests a backup of everything acknowledged before this call.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `NOT_YOURS` if `author` is not an admin of the cluster, and
    /// with code `Unimplemented` if the cluster is too old.
    pub async fn save_snapshot(&self, author: &str) -> Result<SavedSnapshot, ClientError> {
        let request = v1::SaveSnapshotRequest {
            author: author.to_owned(),
        };
        let opened = self.open_stream(self.operation(OPERATION), |channel| {
            let request = request.clone();
            async move { admin(channel).save_snapshot(request).await }
        });
        let (parts, address) = opened.await?;
        Ok(SavedSnapshot {
            parts,
            address,
            part_timeout: self.config().deadline,
        })
    }
}

impl SavedSnapshot {
    /// Returns the next bytes of the file; none at its end.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if the replica stopped or the connection broke: start over, any other
    /// replica serves as well.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let Ok(message) = tokio::time::timeout(self.part_timeout, self.parts.message()).await
        else {
            let limit = self.part_timeout.as_secs_f64();
            return Err(self.cut(format!("no more data within {limit} s")));
        };
        match message {
            Ok(part) => Ok(part.map(|part| part.chunk)),
            Err(status) => Err(match classify(&status) {
                FailureClass::Final(refusal) => ClientError::Refused {
                    operation: OPERATION,
                    refusal,
                },
                FailureClass::Redirect { leader } => self.cut(format!("{leader} leads")),
                FailureClass::Again { cause, .. } => self.cut(cause),
            }),
        }
    }

    fn cut(&self, cause: String) -> ClientError {
        ClientError::Unreachable {
            operation: OPERATION,
            tried: vec![FailedAttempt::new(self.address.clone(), cause)],
        }
    }
}
