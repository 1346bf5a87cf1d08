//! Snapshot file format.
//!
//! `"MUSTSNAP" | format version (4, LE)`, then frames `kind (1) | length (4, LE) | CRC-32 (4, LE) | bytes`:
//! one header (protobuf), data (an LZ4 frame stream cut into pieces), one trailer (protobuf) with the
//! amount of data. A file without its trailer is incomplete.

use std::io::{self, Read, Write};

use muster_proto::raft::v1::{SnapshotHeader, SnapshotTrailer};
use prost::Message as _;

use crate::apply::state_machine::DecodeError;

/// Version of the file format.
pub(super) const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"MUSTSNAP";
/// Bytes of data in one frame.
const DATA_FRAME_BYTES: usize = 256 * 1024;
/// Longest frame a reader accepts.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

const HEADER: u8 = 1;
const DATA: u8 = 2;
const TRAILER: u8 = 3;

/// Writes a snapshot file around the data written to it.
pub(super) struct SnapshotWriter<W: Write> {
    compressor: lz4_flex::frame::FrameEncoder<DataSink<W>>,
}

impl<W: Write> SnapshotWriter<W> {
    /// Writes everything before the data.
    pub(super) fn start(mut out: W, header: &SnapshotHeader) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        write_frame(&mut out, HEADER, &header.encode_to_vec())?;
        let sink = DataSink {
            out,
            pending: Vec::with_capacity(DATA_FRAME_BYTES),
            frames: 0,
            bytes: 0,
        };
        Ok(Self {
            compressor: lz4_flex::frame::FrameEncoder::new(sink),
        })
    }

    /// Writes the rest of the data and the trailer; returns the file.
    pub(super) fn finish(self) -> io::Result<W> {
        let mut sink = self.compressor.finish().map_err(io::Error::other)?;
        sink.emit()?;
        let trailer = SnapshotTrailer {
            data_frames: sink.frames,
            compressed_bytes: sink.bytes,
        };
        write_frame(&mut sink.out, TRAILER, &trailer.encode_to_vec())?;
        Ok(sink.out)
    }
}

impl<W: Write> Write for SnapshotWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.compressor.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.compressor.flush()
    }
}

/// Splits compressed bytes into data frames.
struct DataSink<W: Write> {
    out: W,
    pending: Vec<u8>,
    frames: u64,
    bytes: u64,
}

impl<W: Write> DataSink<W> {
    fn emit(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        write_frame(&mut self.out, DATA, &self.pending)?;
        self.frames += 1;
        self.bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

impl<W: Write> Write for DataSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = DATA_FRAME_BYTES - self.pending.len();
        let taken = bytes.len().min(room);
        self.pending.extend_from_slice(&bytes[..taken]);
        if self.pending.len() == DATA_FRAME_BYTES {
            self.emit()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_frame(out: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len())
        .map_err(|_| io::Error::other("a snapshot frame exceeds 4 GiB"))?;
    out.write_all(&[kind])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&crc32fast::hash(bytes).to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads a snapshot file; reading from it returns the data.
pub(super) struct SnapshotReader<R: Read> {
    header: SnapshotHeader,
    decompressor: lz4_flex::frame::FrameDecoder<DataSource<R>>,
}

impl<R: Read> SnapshotReader<R> {
    /// Reads and checks everything before the data.
    pub(super) fn start(mut input: R) -> Result<Self, DecodeError> {
        let mut magic = [0; 8];
        input.read_exact(&mut magic)?;
        if &magic != MAGIC {
            return Err(DecodeError::malformed("it is not a snapshot file"));
        }
        let mut version = [0; 4];
        input.read_exact(&mut version)?;
        let found = u32::from_le_bytes(version);
        if found > VERSION {
            return Err(DecodeError::NewerVersion {
                found,
                supported: VERSION,
            });
        }
        if found == 0 {
            return Err(DecodeError::malformed("version 0, which no build wrote"));
        }
        let (kind, bytes) = read_frame(&mut input)?;
        if kind != HEADER {
            return Err(DecodeError::malformed("its header is missing"));
        }
        let header = SnapshotHeader::decode(bytes.as_slice())
            .map_err(|error| DecodeError::malformed(format!("its header: {error}")))?;
        Ok(Self {
            header,
            decompressor: lz4_flex::frame::FrameDecoder::new(DataSource::new(input)),
        })
    }

    pub(super) fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// Checks all frames by their checksums and against the trailer, without decoding the data.
    pub(super) fn check(self) -> Result<(), DecodeError> {
        let mut source = self.decompressor.into_inner();
        source.drain()?;
        Ok(())
    }

    /// Checks that the data was complete and that nothing follows it.
    pub(super) fn finish(mut self) -> Result<(), DecodeError> {
        let mut rest = [0; 1];
        if self.decompressor.read(&mut rest)? != 0 {
            return Err(DecodeError::malformed(
                "it holds more data than the state read",
            ));
        }
        self.check()
    }
}

impl<R: Read> Read for SnapshotReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decompressor.read(buffer)
    }
}

/// Concatenates data frames and checks them against the trailer.
struct DataSource<R: Read> {
    input: R,
    frame: Vec<u8>,
    position: usize,
    frames: u64,
    bytes: u64,
    ended: bool,
}

impl<R: Read> DataSource<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            frame: Vec::new(),
            position: 0,
            frames: 0,
            bytes: 0,
            ended: false,
        }
    }

    /// Loads the next frame; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let (kind, bytes) = read_frame(&mut self.input)?;
        match kind {
            DATA => {
                self.frames += 1;
                self.bytes += bytes.len() as u64;
                self.frame = bytes;
                self.position = 0;
                Ok(true)
            }
            TRAILER => self.check_trailer(&bytes).map(|()| false),
            _ => Err(invalid("a frame of unknown kind")),
        }
    }

    fn check_trailer(&mut self, bytes: &[u8]) -> io::Result<()> {
        let trailer = SnapshotTrailer::decode(bytes).map_err(|_| invalid("its trailer"))?;
        if trailer.data_frames != self.frames || trailer.compressed_bytes != self.bytes {
            return Err(invalid("its trailer does not match its data"));
        }
        self.ended = true;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        while self.advance()? {}
        Ok(())
    }
}

impl<R: Read> Read for DataSource<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position == self.frame.len() {
            if !self.advance()? {
                return Ok(0);
            }
        }
        let taken = buffer.len().min(self.frame.len() - self.position);
        buffer[..taken].copy_from_slice(&self.frame[self.position..self.position + taken]);
        self.position += taken;
        Ok(taken)
    }
}

fn read_frame(input: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    input.read_exact(&mut head)?;
    let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(invalid("a frame exceeds the size limit"));
    }
    // Grown as bytes arrive: a length field alone must not allocate memory.
    let mut bytes = Vec::with_capacity(length.min(DATA_FRAME_BYTES));
    input.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if crc32fast::hash(&bytes) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(invalid("the checksum of a frame does not match"));
    }
    Ok((kind, bytes))
}

fn invalid(detail: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail)
}
