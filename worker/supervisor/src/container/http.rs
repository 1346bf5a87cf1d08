//! HTTP/1.1 over a Unix socket, as far as container engines need it: one request per connection, answers of
//! known length, chunked or until close, and connections that become a stream.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use httparse::{EMPTY_HEADER, Status};

use crate::container::login::Login;

/// Maximum size of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum number of headers of an answer.
const HEADERS_MAX: usize = 64;
/// Maximum size of a buffered answer body: engines' answers about a container are a hundredth of it.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes read at a time.
const READ_BYTES: usize = 16 << 10;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    /// `GET`, `POST`, `DELETE`.
    pub(super) method: &'static str,
    /// Path and query.
    pub(super) target: &'a str,
    /// JSON body, if any.
    pub(super) body: Option<&'a [u8]>,
    /// Whether the connection becomes a stream with the answer.
    pub(super) upgrade: bool,
    /// Registry login that the engine forwards.
    pub(super) login: Option<&'a Login>,
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// HTTP status.
    pub(super) status: u16,
    /// Headers.
    pub(super) headers: Vec<(String, String)>,
    /// Body.
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// A header by its lower-case name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A sent request and its answer as received so far.
#[derive(Debug)]
pub(super) struct Exchange {
    stream: UnixStream,
    decoder: Decoder,
    never_waits: bool,
}

impl Exchange {
    /// Sends a request. From then on the connection times out after a silence of `silence_max`.
    pub(super) fn send(
        socket: &Path,
        request: &Request<'_>,
        silence_max: Duration,
    ) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(silence_max))?;
        stream.set_write_timeout(Some(silence_max))?;
        let body = request.body.unwrap_or_default();
        let connection = match request.upgrade {
            true => "Connection: Upgrade\r\nUpgrade: tcp\r\n",
            false => "Connection: close\r\n",
        };
        let login = request.login.map_or_else(String::new, |login| {
            format!("X-Registry-Auth: {}\r\n", login.header())
        });
        let head = format!(
            "{} {} HTTP/1.1\r\nHost: engine\r\n{connection}{login}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            request.method,
            request.target,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        Ok(Self {
            stream,
            decoder: Decoder::default(),
            never_waits: false,
        })
    }

    /// Waits for the complete answer.
    pub(super) fn finish(mut self) -> io::Result<Reply> {
        while !self.decoder.is_done() {
            self.read()?;
        }
        Ok(Reply {
            status: self.decoder.status.unwrap_or_default(),
            headers: self.decoder.headers,
            body: self.decoder.body,
        })
    }

    /// Waits for the status.
    pub(super) fn status(&mut self) -> io::Result<u16> {
        loop {
            if let Some(status) = self.decoder.status {
                return Ok(status);
            }
            self.read()?;
        }
    }

    /// Reads available data or waits for some. False if the answer has ended.
    ///
    /// # Errors
    /// Errors of the kernel (`WouldBlock` if a non-blocking read has no data, `TimedOut` after the maximum
    /// silence), `UnexpectedEof` for a truncated answer, `InvalidData` for malformed HTTP.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        if self.decoder.is_done() {
            return Ok(false);
        }
        let mut bytes = [0u8; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(count) => self.decoder.push(&bytes[..count])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && !self.never_waits => {
                return Err(io::Error::new(ErrorKind::TimedOut, "no answer in time"));
            }
            Err(error) => return Err(error),
        }
        Ok(!self.decoder.is_done())
    }

    /// The complete answer, if it has arrived by now: for non-blocking use.
    pub(super) fn finished(&mut self) -> io::Result<Option<Reply>> {
        while !self.decoder.is_done() {
            match self.read() {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(Reply {
            status: self.decoder.status.unwrap_or_default(),
            headers: std::mem::take(&mut self.decoder.headers),
            body: self.take(),
        }))
    }

    /// The status, if the head has arrived by now.
    pub(super) const fn status_so_far(&self) -> Option<u16> {
        self.decoder.status
    }

    /// Sends more, once the connection is a stream; returns the number of bytes accepted.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    /// Shuts down the sending side. Reading continues.
    pub(super) fn end_input(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Takes the part of the body received since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.decoder.body)
    }

    /// Makes reads non-blocking from now on.
    pub(super) fn never_wait(&mut self) -> io::Result<()> {
        self.never_waits = true;
        self.stream.set_nonblocking(true)
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Incremental decoder of an answer.
#[derive(Debug, Default)]
struct Decoder {
    status: Option<u16>,
    headers: Vec<(String, String)>,
    part: Part,
    raw: Vec<u8>,
    body: Vec<u8>,
}

/// Part of the answer that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Head,
    /// Remaining bytes of a body of known length.
    Whole(u64),
    /// Everything until the connection closes.
    Stream,
    ChunkSize,
    /// Remaining bytes of a chunk.
    Chunk(u64),
    ChunkEnd,
    /// Nothing more.
    Done,
}

impl Decoder {
    fn is_done(&self) -> bool {
        self.part == Part::Done
    }

    /// Appends received data; empty data means that the other side closed the connection.
    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return self.hung_up();
        }
        self.raw.extend_from_slice(bytes);
        while self.advance()? {}
        if self.body.len() > BODY_BYTES_MAX {
            return Err(malformed("answer too long (BODY_BYTES_MAX)"));
        }
        Ok(())
    }

    fn hung_up(&mut self) -> io::Result<()> {
        if self.part != Part::Stream {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.part = Part::Done;
        Ok(())
    }

    /// Decodes one more part; false if more data is needed.
    fn advance(&mut self) -> io::Result<bool> {
        match self.part {
            Part::Head => self.head(),
            Part::Whole(left) => Ok(self.copy(left, Part::Whole, Part::Done)),
            Part::Chunk(left) => Ok(self.copy(left, Part::Chunk, Part::ChunkEnd)),
            Part::Stream => {
                self.body.append(&mut self.raw);
                Ok(false)
            }
            Part::ChunkSize => self.chunk_size(),
            Part::ChunkEnd => {
                let is_whole = self.raw.len() >= 2;
                if is_whole {
                    self.raw.drain(..2);
                    self.part = Part::ChunkSize;
                }
                Ok(is_whole)
            }
            Part::Done => Ok(false),
        }
    }

    fn head(&mut self) -> io::Result<bool> {
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head
            .parse(&self.raw)
            .map_err(|error| malformed(&error.to_string()))?;
        let Status::Complete(bytes) = parsed else {
            if self.raw.len() > HEAD_BYTES_MAX {
                return Err(malformed("head too long (HEAD_BYTES_MAX)"));
            }
            return Ok(false);
        };
        let status = head.code.unwrap_or_default();
        self.part = part_after(status, head.headers)?;
        self.status = Some(status);
        let headers = head.headers.iter().map(|header| {
            let value = String::from_utf8_lossy(header.value);
            (header.name.to_ascii_lowercase(), value.trim().to_owned())
        });
        self.headers = headers.collect();
        self.raw.drain(..bytes);
        Ok(true)
    }

    fn chunk_size(&mut self) -> io::Result<bool> {
        match httparse::parse_chunk_size(&self.raw) {
            Ok(Status::Complete((bytes, size))) => {
                self.raw.drain(..bytes);
                self.part = match size {
                    0 => Part::Done,
                    size => Part::Chunk(size),
                };
                Ok(true)
            }
            Ok(Status::Partial) => Ok(false),
            Err(_) => Err(malformed("chunk without size")),
        }
    }

    /// Moves up to `left` bytes to the body; returns the rest of the part, or the next part.
    fn copy(&mut self, left: u64, rest: impl Fn(u64) -> Part, next: Part) -> bool {
        let count = self
            .raw
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        self.body.extend(self.raw.drain(..count));
        let left = left - count as u64;
        self.part = if left == 0 { next } else { rest(left) };
        left == 0
    }
}

/// The part that follows a head.
fn part_after(status: u16, headers: &[httparse::Header<'_>]) -> io::Result<Part> {
    let find = |name: &str| {
        let mut headers = headers.iter();
        headers
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    if matches!(status, 204 | 304) {
        return Ok(Part::Done);
    }
    if find("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"chunked")) {
        return Ok(Part::ChunkSize);
    }
    let Some(length) = find("content-length").filter(|_| status != 101) else {
        return Ok(Part::Stream);
    };
    let length = std::str::from_utf8(length).ok().map(str::trim);
    match length.and_then(|text| text.parse().ok()) {
        Some(0) => Ok(Part::Done),
        Some(length) => Ok(Part::Whole(length)),
        None => Err(malformed("content length is not a number")),
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("malformed HTTP: {what}"))
}

/// Encodes a text for a request target. Slashes are kept if they are part of a path.
pub(super) fn encoded(text: &str, keeps_slashes: bool) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_plain || (keeps_slashes && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            let _infallible = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    /// Decodes an answer in pieces of `piece` bytes.
    fn decoded(answer: &[u8], piece: usize) -> io::Result<Decoder> {
        let mut decoder = Decoder::default();
        for bytes in answer.chunks(piece) {
            decoder.push(bytes)?;
        }
        Ok(decoder)
    }

    #[test]
    fn answers_are_read_in_whatever_pieces_they_come() {
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let whole = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nabcde";
        for piece in [1, 2, 3, 7, 1_000] {
            for (answer, status) in [(&chunked[..], 200), (&whole[..], 404)] {
                let decoder = decoded(answer, piece).unwrap();
                assert!(decoder.is_done(), "{piece}");
                assert_eq!(decoder.status, Some(status));
                assert_eq!(decoder.body, b"abcde");
            }
        }
        assert!(
            decoded(b"HTTP/1.1 204 No Content\r\n\r\n", 1)
                .unwrap()
                .is_done()
        );
    }

    #[test]
    fn a_stream_ends_when_the_other_side_hangs_up_and_nothing_else_does() {
        let answer = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nabc";
        let mut decoder = decoded(answer, 5).unwrap();
        assert_eq!((decoder.is_done(), &*decoder.body), (false, &b"abc"[..]));
        decoder.push(b"").unwrap();
        assert!(decoder.is_done());
        let mut cut = decoded(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", 9).unwrap();
        assert_eq!(cut.push(b"").unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(
            decoded(b"SMTP ready\r\n\r\n", 4).unwrap_err().kind(),
            ErrorKind::InvalidData
        );
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encoded("r.io/a:1@x", true), "r.io/a%3A1%40x");
        assert_eq!(encoded("a/b c", false), "a%2Fb%20c");
    }
}
