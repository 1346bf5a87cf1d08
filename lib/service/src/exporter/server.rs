//! HTTP listener of `/metrics`, and of the probes `/livez` and `/readyz`.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
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

/// Most concurrent connections to the metrics listener.
const CONNECTIONS_MAX: usize = 16;
/// Timeout of a request's headers.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);
/// Content type of the text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Callback that renders the page.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;
/// Readiness of the role: an optional remark if it is ready, the reason if it is not.
pub type Ready =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync>;

/// Serves `/metrics`, `/livez` (the process answers) and `/readyz` (the role is ready) until it is stopped.
pub struct MetricsServer {
    /// Listening socket.
    pub listener: TcpListener,
    /// Content of `/metrics`.
    pub render: Render,
    /// Content of `/readyz`.
    pub ready: Ready,
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
            let (render, ready) = (Arc::clone(&self.render), Arc::clone(&self.ready));
            let stop = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = serve(stream, render, ready) => {}
                }
                drop(permit);
            });
        }
    }
}

async fn serve(stream: TcpStream, render: Render, ready: Ready) {
    let service = service_fn(move |request| {
        let (render, ready) = (Arc::clone(&render), Arc::clone(&ready));
        async move { Ok::<_, Infallible>(answer(&request, &render, &ready).await) }
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

async fn answer(
    request: &Request<Incoming>,
    render: &Render,
    ready: &Ready,
) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, render()),
        (&Method::GET, "/livez") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET, "/readyz") => match ready().await {
            Ok(notes) if notes.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
            Ok(notes) => (StatusCode::OK, format!("ok\n{notes}\n")),
            Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
        },
        (_, "/metrics" | "/livez" | "/readyz") => {
            (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned())
        }
        _ => (
            StatusCode::NOT_FOUND,
            "try /metrics, /livez or /readyz\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        hyper::header::HeaderValue::from_static(TEXT_FORMAT),
    );
    response
}
