//! Metadata sent with every call: the client's token, and its timeout.

use std::time::Duration;

use muster_tls::Token;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::error::ClientError;

/// Header that carries the token.
const HEADER: &str = "authorization";

/// A connection whose calls carry the client's credential and timeout.
pub(crate) type AuthenticatedChannel = InterceptedService<Channel, CallMetadata>;

/// Metadata added to calls.
#[derive(Clone, Debug)]
pub(crate) struct CallMetadata {
    credential: Credential,
    timeout: Option<Duration>,
}

/// The client's token as a header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credential(Option<MetadataValue<Ascii>>);

impl Credential {
    /// Converts a token, if there is one.
    pub(crate) fn of(token: Option<&Token>) -> Result<Self, ClientError> {
        let header = |token: &Token| {
            let mut value: MetadataValue<Ascii> = format!("Bearer {}", token.text())
                .parse()
                .map_err(|_| ClientError::Config {
                    field: "token",
                    rule: "must be a token as `muster user add` prints it".to_owned(),
                })?;
            value.set_sensitive(true);
            Ok(value)
        };
        Ok(Self(token.map(header).transpose()?))
    }

    /// Whether there is a token.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Returns a connection whose calls carry the token and this timeout (`grpc-timeout`).
    pub(crate) fn on(&self, channel: Channel, timeout: Option<Duration>) -> AuthenticatedChannel {
        let credential = self.clone();
        InterceptedService::new(
            channel,
            CallMetadata {
                credential,
                timeout,
            },
        )
    }
}

impl Interceptor for CallMetadata {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.credential.0 {
            request.metadata_mut().insert(HEADER, value.clone());
        }
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout);
        }
        Ok(request)
    }
}
