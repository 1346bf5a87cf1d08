//! A fake container engine, for behavior that a real one shows only under failures.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Answers one request, given as `METHOD path`, on its connection.
type Answer = dyn Fn(&str, &mut UnixStream) + Send + Sync;

/// An engine that answers by a function. It ends with the test program.
pub(crate) struct FakeEngine {
    home: tempfile::TempDir,
    /// Received requests, with heads and bodies.
    received: Arc<Mutex<Vec<(String, String, String)>>>,
}

impl FakeEngine {
    /// Starts a fake engine.
    pub(crate) fn start(answer: impl Fn(&str, &mut UnixStream) + Send + Sync + 'static) -> Self {
        let engine = Self {
            home: tempfile::tempdir().unwrap(),
            received: Arc::default(),
        };
        let listener = UnixListener::bind(engine.socket()).unwrap();
        let (received, answer): (_, Arc<Answer>) = (Arc::clone(&engine.received), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (received, answer) = (Arc::clone(&received), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let (request, head, body) = read_request(&mut stream);
                    received.lock().unwrap().push((request.clone(), head, body));
                    answer(&request, &mut stream);
                });
            }
        });
        engine
    }

    /// Path of its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join("engine.sock")
    }

    /// Whether a request with this prefix was received.
    pub(crate) fn was_requested(&self, beginning: &str) -> bool {
        self.times_requested(beginning) > 0
    }

    /// Number of received requests with this prefix.
    pub(crate) fn times_requested(&self, beginning: &str) -> usize {
        let received = self.received.lock().unwrap();
        let like_this = |(request, ..): &&(String, _, _)| request.starts_with(beginning);
        received.iter().filter(like_this).count()
    }

    /// Body of the first request with this prefix.
    pub(crate) fn body_of(&self, beginning: &str) -> serde_json::Value {
        let received = self.received.lock().unwrap();
        let mut requests = received.iter();
        let (.., body) = requests.find(|(it, ..)| it.starts_with(beginning)).unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// A header of the first request with this prefix.
    pub(crate) fn header_of(&self, beginning: &str, name: &str) -> Option<String> {
        let received = self.received.lock().unwrap();
        let mut requests = received.iter();
        let (_, head, _) = requests.find(|(it, ..)| it.starts_with(beginning)).unwrap();
        let mut headers = head.lines().filter_map(|line| line.split_once(": "));
        headers
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value.to_owned())
    }
}

/// Method and target of a request, its head and its body.
fn read_request(stream: &mut UnixStream) -> (String, String, String) {
    let mut read = Vec::new();
    let mut bytes = [0u8; 4_096];
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                let line = head.lines().next().unwrap();
                let request = line.trim_end_matches(" HTTP/1.1");
                return (request.to_owned(), head.to_owned(), body.to_owned());
            }
        }
        let count = stream.read(&mut bytes).unwrap();
        if count == 0 {
            return Default::default();
        }
        read.extend(&bytes[..count]);
    }
}

/// Answers with JSON.
pub(crate) fn json(stream: &mut UnixStream, status: u16, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} Whatever\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // A client that hung up does not need the answer.
    drop(stream.write_all(format!("{head}{body}").as_bytes()));
}

/// Identifies the engine by a header.
pub(crate) fn greet(stream: &mut UnixStream, header: &str) {
    let head = format!("HTTP/1.1 200 OK\r\n{header}\r\nContent-Length: 2\r\n\r\nOK");
    drop(stream.write_all(head.as_bytes()));
}

/// Default answers: identity, and an image that is present.
pub(crate) fn ordinary(request: &str, stream: &mut UnixStream) {
    match request {
        "GET /_ping" => greet(stream, "Server: Docker/1.0 (test)"),
        "GET /info" => json(stream, 200, r#"{"CgroupDriver": "systemd"}"#),
        request if request.starts_with("GET /images/") => {
            json(stream, 200, r#"{"Id": "sha256:1"}"#);
        }
        _ => json(stream, 404, r#"{"message": "no such container"}"#),
    }
}
