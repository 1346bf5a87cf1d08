//! Audit log of a replica.

use muster_proto::v1;
use tonic::{Code, Streaming};

use crate::client::{Client, admin};
use crate::error::{ClientError, FailedAttempt};
use crate::transport::retry::{FailureClass, classify};

/// Completes the sentence "cannot ...".
const OPERATION: &str = "read the audit log";

/// Stream of a replica's audit records.
#[derive(Debug)]
pub struct AuditRecords {
    messages: Streaming<v1::ReadAuditLogResponse>,
    address: String,
}

impl Client {
    /// Reads the audit log of the answering replica. Each replica has its own: for the complete log, read
    /// every replica with a client that knows only that one.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `NOT_YOURS` if `author` is not an admin of the cluster.
    pub async fn read_audit_log(
        &self,
        request: v1::ReadAuditLogRequest,
    ) -> Result<AuditRecords, ClientError> {
        let opened = self.open_stream(self.operation(OPERATION), |channel| {
            let request = request.clone();
            async move { admin(channel).read_audit_log(request).await }
        });
        let (messages, address) = opened.await?;
        Ok(AuditRecords { messages, address })
    }
}

impl AuditRecords {
    /// Returns the next records, in order; none at the end.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if the replica stopped or the connection broke.
    pub async fn next(&mut self) -> Result<Option<Vec<v1::AuditRecord>>, ClientError> {
        match self.messages.message().await {
            Ok(message) => Ok(message.map(|message| message.records)),
            Err(status) => Err(match classify(&status) {
                FailureClass::Final(refusal) if refusal.code != Code::Internal => {
                    ClientError::Refused {
                        operation: OPERATION,
                        refusal,
                    }
                }
                _ => ClientError::Unreachable {
                    operation: OPERATION,
                    tried: vec![FailedAttempt::new(
                        self.address.clone(),
                        status.message().to_owned(),
                    )],
                },
            }),
        }
    }
}
