//! Output of a container as engines send it: frames of both streams, each with a header of eight bytes; from
//! a terminal, which has one stream, raw.

use std::io::{self, ErrorKind};

use crate::output::segments::OutputStream;

/// Frame header size: the stream's number, three zeros, and the length, most significant byte first.
const HEAD_BYTES: usize = 8;
/// Stream number of standard error; anything else is standard output.
const STDERR: u8 = 2;

/// Frames that were read and not yet written.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Whether the data is raw: all is standard output.
    is_bare: bool,
    raw: Vec<u8>,
    current: Option<(OutputStream, usize)>,
}

impl Frames {
    /// Buffer for raw output of a terminal.
    pub(super) fn bare() -> Self {
        Self {
            is_bare: true,
            ..Self::default()
        }
    }

    /// Appends received data.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
    }

    /// Writes all buffered data. Returns the stream that blocks, if any: read nothing more before it accepts
    /// data.
    ///
    /// # Errors
    /// Errors of the write, except `WouldBlock`.
    pub(super) fn write(
        &mut self,
        mut write: impl FnMut(OutputStream, &[u8]) -> io::Result<usize>,
    ) -> io::Result<Option<OutputStream>> {
        while let Some((stream, left)) = self.piece() {
            let count = left.min(self.raw.len());
            if count == 0 && left > 0 {
                break;
            }
            let written = match write(stream, &self.raw[..count]) {
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Some(stream)),
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
            };
            self.raw.drain(..written);
            let left = left - written;
            self.current = (left > 0).then_some((stream, left));
        }
        Ok(None)
    }

    /// The frame that is being written, or the next one.
    fn piece(&mut self) -> Option<(OutputStream, usize)> {
        if self.is_bare {
            return (!self.raw.is_empty()).then_some((OutputStream::Stdout, self.raw.len()));
        }
        if self.current.is_none() {
            let head: [u8; HEAD_BYTES] = self.raw.get(..HEAD_BYTES)?.try_into().ok()?;
            let [number, _, _, _, length @ ..] = head;
            let stream = match number {
                STDERR => OutputStream::Stderr,
                _ => OutputStream::Stdout,
            };
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            self.raw.drain(..HEAD_BYTES);
            self.current = Some((stream, length));
        }
        self.current
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn piece(number: u8, text: &[u8]) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&[number, 0, 0, 0][..], &length, text].concat()
    }

    #[test]
    fn outputs_are_separated_however_their_frames_are_split() {
        let all = [
            piece(1, b"out"),
            piece(2, b""),
            piece(2, b"error"),
            piece(1, b"!"),
        ]
        .concat();
        for size in [1, 3, 100] {
            let mut frames = Frames::default();
            let (mut out, mut errors) = (Vec::new(), Vec::new());
            for bytes in all.chunks(size) {
                frames.push(bytes);
                let blocked = frames.write(|stream, bytes| {
                    // A pipe that accepts two bytes at a time.
                    let count = bytes.len().min(2);
                    match stream {
                        OutputStream::Stdout => out.extend(&bytes[..count]),
                        OutputStream::Stderr => errors.extend(&bytes[..count]),
                    }
                    Ok(count)
                });
                assert_eq!(blocked.unwrap(), None);
            }
            assert_eq!((&*out, &*errors), (&b"out!"[..], &b"error"[..]), "{size}");
        }
    }

    #[test]
    fn output_of_a_terminal_has_no_frame_headers() {
        let mut frames = Frames::bare();
        let mut out = Vec::new();
        for bytes in [&piece(2, b"a")[..], b"bc"] {
            frames.push(bytes);
            let blocked = frames.write(|stream, bytes| {
                assert_eq!(stream, OutputStream::Stdout);
                out.push(bytes[0]);
                Ok(1)
            });
            assert_eq!(blocked.unwrap(), None);
        }
        assert_eq!(out, [&piece(2, b"a")[..], b"bc"].concat());
    }

    #[test]
    fn a_full_pipe_is_named_and_nothing_is_lost() {
        let mut frames = Frames::default();
        frames.push(&piece(2, b"error"));
        let blocked = frames.write(|_, _| Err(ErrorKind::WouldBlock.into()));
        assert_eq!(blocked.unwrap(), Some(OutputStream::Stderr));
        let mut errors = Vec::new();
        let written = frames.write(|_, bytes| {
            errors.extend(bytes);
            Ok(bytes.len())
        });
        assert_eq!((written.unwrap(), &*errors), (None, &b"error"[..]));
    }
}
