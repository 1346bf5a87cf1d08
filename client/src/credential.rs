//! The token that a client shows with every call.

use muster_tls::Token;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::error::ClientError;

/// Header that carries it.
const HEADER: &str = "authorization";

/// A connection over which every call shows the client's credential.
pub(crate) type Line = InterceptedService<Channel, Credential>;

/// What every call shows.
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

    /// A connection that shows it.
    pub(crate) fn on(&self, channel: Channel) -> Line {
        InterceptedService::new(channel, self.clone())
    }
}

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert(HEADER, value.clone());
        }
        Ok(request)
    }
}
