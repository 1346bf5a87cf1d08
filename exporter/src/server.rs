//! The HTTP listener of `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Connections to the metrics listener at a time.
const CONNECTIONS_MAX: usize = 16;
/// Longest wait for a request's headers.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);
/// The text format's content type.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders the page.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves `/metrics` until it is stopped.
pub struct MetricsServer {
    /// Where it is asked.
    pub listener: TcpListener,
    /// What it answers.
    pub render: Render,
}

impl MetricsServer {
    /// Serves until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a metrics connection failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Over the limit the connection is closed at once.
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                continue;
            };
            let render = Arc::clone(&self.render);
            let stop = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = serve(stream, render) => {}
                }
                drop(permit);
            });
        }
    }
}

async fn serve(stream: TcpStream, render: Render) {
    let service = service_fn(move |request| {
        let answer = answer(&request, &render);
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a metrics connection ended early");
    }
}

fn answer(request: &Request<Incoming>, render: &Render) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, render()),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "try /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        hyper::header::HeaderValue::from_static(TEXT_FORMAT),
    );
    response
}
