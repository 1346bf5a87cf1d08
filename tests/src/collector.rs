//! Span collector: receives what processes export by OTLP over gRPC, and keeps it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use muster_tracing::TraceId;
use muster_tracing::otlp::{self, ExportRequest, ExportResponse};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// A span and the process that exported it.
#[derive(Clone, Debug)]
pub struct Collected {
    /// `muster-scheduler`, `muster-worker`, `muster-cli`.
    pub service: String,
    /// Instance of the service.
    pub instance: String,
    /// The span.
    pub span: otlp::Span,
}

/// A collector on loopback, which lives as long as the test's runtime.
#[derive(Clone, Debug)]
pub struct Collector {
    /// `http://127.0.0.1:PORT`.
    pub endpoint: String,
    spans: Arc<Mutex<Vec<Collected>>>,
}

impl Collector {
    /// Starts a collector.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let collector = Self {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            spans: Arc::default(),
        };
        let service = TraceService(collector.clone());
        let incoming = TcpListenerStream::new(listener);
        tokio::spawn(
            Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming),
        );
        collector
    }

    /// The spans of a trace, in order of arrival.
    #[must_use]
    pub fn trace(&self, trace: TraceId) -> Vec<Collected> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let of_trace = |it: &&Collected| it.span.trace_id == trace.bytes();
        spans.iter().filter(of_trace).cloned().collect()
    }

    fn take(&self, request: ExportRequest) {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        for process in request.resource_spans {
            let attributes = process.resource.unwrap_or_default().attributes;
            let text = |key: &str| {
                let found = attributes.iter().find(|it| it.key == key);
                found
                    .and_then(|it| it.text())
                    .unwrap_or_default()
                    .to_owned()
            };
            let (service, instance) = (text("service.name"), text("service.instance.id"));
            for span in process.scope_spans.into_iter().flat_map(|it| it.spans) {
                spans.push(Collected {
                    service: service.clone(),
                    instance: instance.clone(),
                    span,
                });
            }
        }
    }
}

/// `opentelemetry.proto.collector.trace.v1.TraceService`.
#[derive(Clone)]
struct TraceService(Collector);

impl NamedService for TraceService {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl Service<http::Request<Body>> for TraceService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let export = Export(self.0.clone());
        Box::pin(async move {
            if request.uri().path() != otlp::EXPORT_PATH {
                return Ok(Status::unimplemented("no such call").into_http());
            }
            let codec: ProstCodec<ExportResponse, ExportRequest> = ProstCodec::default();
            Ok(Grpc::new(codec).unary(export, request).await)
        })
    }
}

/// The only RPC.
struct Export(Collector);

impl UnaryService<ExportRequest> for Export {
    type Response = ExportResponse;
    type Future = BoxFuture<Response<ExportResponse>, Status>;

    fn call(&mut self, request: Request<ExportRequest>) -> Self::Future {
        self.0.take(request.into_inner());
        Box::pin(async { Ok(Response::new(ExportResponse::default())) })
    }
}
