//! What a client shows with every call: its token, and how long it waits for the answer.

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

/// A connection over which a call shows the client's credential, and its patience.
pub(crate) type Line = InterceptedService<Channel, Shown>;

/// What a call shows.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    credential: Credential,
    patience: Option<Duration>,
}

/// The client's token as a header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credential(Option<MetadataValue<Ascii>>);

impl Credential {
    /// Of a token, if there is one.
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

    /// Whether there is anything to show.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// A connection that shows it; calls over it say that the caller waits so long (`grpc-timeout`).
    pub(crate) fn on(&self, channel: Channel, patience: Option<Duration>) -> Line {
        let credential = self.clone();
        InterceptedService::new(
            channel,
            Shown {
                credential,
                patience,
            },
        )
    }
}

impl Interceptor for Shown {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.credential.0 {
            request.metadata_mut().insert(HEADER, value.clone());
        }
        if let Some(patience) = self.patience {
            request.set_timeout(patience);
        }
        Ok(request)
    }
}
