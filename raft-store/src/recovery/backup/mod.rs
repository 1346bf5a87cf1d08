//! Backups: the state of a group in a file that is checked byte by byte, optionally encrypted, and from
//! which a new group can be created ([`crate::RebuildTarget`]).
//!
//! The content of the envelope ([`chunks`]) is a header and the bytes of the state:
//!
//! ```text
//! length: u32 LE | muster.raft.v1.BackupHeader | an LZ4 frame of what `StateMachine::write_snapshot` writes
//! ```
//!
//! Unlike the snapshots that a replica keeps for itself, a backup leaves its machine, so every byte of it
//! is bound by a cryptographic digest.

mod chunks;
mod error;
mod key;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};

use data_encoding::HEXLOWER;
use muster_proto::raft::v1::BackupHeader;
use prost::Message as _;

pub use error::BackupError;
pub use key::{Key, KeyError};

use self::chunks::{ChunkReader, ChunkWriter};
use crate::apply::shared::Applied;
use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::member::peer::Peer;
use crate::storage::codec::convert;
use crate::types::LogId;

/// Longest header accepted, in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// State together with its log position and the membership at that position.
#[derive(Clone)]
pub struct CapturedState<M: StateMachine>(pub(crate) Applied<M>);

/// Metadata stored in a backup beside the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupMetadata {
    /// Cluster id of the state.
    pub cluster_id: String,
    /// Id of the replica that took the backup.
    pub replica_id: u64,
    /// That replica's clock, in milliseconds since 1970.
    pub time_ms: u64,
    /// Version of that replica's program.
    pub version: String,
}

/// Backup that was read and checked.
#[derive(Clone)]
pub struct Backup<M: StateMachine> {
    /// Origin of the backup.
    pub about: BackupMetadata,
    /// The state.
    pub state: M,
    /// Raft term of the last entry that the state covers; 0 if it covers none.
    pub term: u64,
    /// Log index of that entry; 0 if it covers none.
    pub index: u64,
    /// Members of the group; true marks a voter.
    pub members: Vec<(Peer, bool)>,
    /// Whether the state has the same hash as in the replica that took the backup. Another build may
    /// compute the hash differently, so a mismatch alone proves nothing; the digest guarantees the bytes.
    pub has_known_hash: bool,
    /// SHA-256 of the whole file, in hexadecimal digits.
    pub digest: String,
    /// Whether the content is encrypted.
    pub is_sealed: bool,
}

impl<M: StateMachine> CapturedState<M> {
    /// The state.
    pub fn state(&self) -> &M {
        &self.0.state
    }

    /// Writes a backup; returns the SHA-256 of the whole file in hexadecimal digits.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write_backup(
        &self,
        out: &mut dyn Write,
        about: &BackupMetadata,
        key: Option<&Key>,
    ) -> io::Result<String> {
        let header = BackupHeader {
            cluster_id: about.cluster_id.clone(),
            revision: self.0.state.revision(),
            last: self.0.last.as_ref().map(convert::log_id_to_proto),
            membership: Some(convert::stored_membership_to_proto(&self.0.membership)),
            time_ms: about.time_ms,
            version: about.version.clone(),
            state_hash: self.0.state.state_hash(),
            state_hash_version: M::state_hash_version(),
            replica_id: about.replica_id,
        };
        let mut chunks = ChunkWriter::start(out, key)?;
        let bytes = header.encode_to_vec();
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        chunks.write_all(&length.to_le_bytes())?;
        chunks.write_all(&bytes)?;
        let mut compressor = lz4_flex::frame::FrameEncoder::new(chunks);
        self.0.state.write_snapshot(&mut compressor)?;
        let (out, digest) = compressor.finish().map_err(io::Error::other)?.finish()?;
        out.flush()?;
        Ok(HEXLOWER.encode(&digest))
    }
}

/// Checks every byte of a backup and writes it again, sealed with another key or none; returns the digest
/// of the new file.
///
/// # Errors
/// Errors of the input; [`BackupError::Read`] also for write errors of `out`.
pub fn reseal(
    input: &mut dyn Read,
    out: &mut dyn Write,
    old_key: Option<&Key>,
    new_key: Option<&Key>,
) -> Result<String, BackupError> {
    let mut reader = ChunkReader::start(input, old_key)?;
    let mut writer = ChunkWriter::start(out, new_key).map_err(BackupError::Read)?;
    while let Some(content) = reader.next()? {
        writer.write_all(&content).map_err(BackupError::Read)?;
    }
    let (out, digest) = writer.finish().map_err(BackupError::Read)?;
    out.flush().map_err(BackupError::Read)?;
    Ok(HEXLOWER.encode(&digest))
}

impl<M: StateMachine> Backup<M> {
    /// Reads a backup and checks all of it.
    ///
    /// # Errors
    /// The defect found and its position.
    pub fn read(input: &mut dyn Read, key: Option<&Key>) -> Result<Self, BackupError> {
        let mut content = Content {
            chunks: ChunkReader::start(input, key)?,
            piece: Vec::new(),
            position: 0,
            failure: None,
        };
        let decoded = Decoded::<M>::read(&mut content);
        // Damage of the file explains any decoding error, so it takes precedence.
        let rest = content.drain();
        if let Some(failure) = content.failure.take() {
            return Err(failure);
        }
        let decoded = decoded?;
        if rest > 0 {
            let detail = format!("{rest} bytes follow the state");
            return Err(BackupError::Content(detail));
        }
        decoded.into_backup(&content)
    }
}

/// Header and state of a backup.
struct Decoded<M> {
    header: BackupHeader,
    state: M,
}

impl<M: StateMachine> Decoded<M> {
    fn read(content: &mut Content<'_>) -> Result<Self, BackupError> {
        let header = read_header(content)?;
        let mut decompressor = lz4_flex::frame::FrameDecoder::new(&mut *content);
        let state = M::read_snapshot(&mut decompressor).map_err(|error| unusable(&error))?;
        let mut more = [0; 1];
        match decompressor.read(&mut more) {
            Ok(0) => Ok(Self { header, state }),
            Ok(_) => Err(BackupError::Content(
                "it holds more data than its state".to_owned(),
            )),
            Err(error) => Err(BackupError::Content(error.to_string())),
        }
    }

    fn into_backup(self, content: &Content<'_>) -> Result<Backup<M>, BackupError> {
        let Self { header, state } = self;
        if state.revision() != header.revision {
            return Err(BackupError::Content(format!(
                "its state has revision {}, its header says {}",
                state.revision(),
                header.revision
            )));
        }
        let last = convert::optional_log_id(header.last).map_err(|error| unusable(&error))?;
        let membership = convert::stored_membership_from_proto(header.membership)
            .map_err(|error| unusable(&error))?;
        let voters: Vec<u64> = membership.membership().voter_ids().collect();
        let member = |(id, node): (&u64, &crate::types::Node)| {
            (Peer::new(*id, node.address.clone()), voters.contains(id))
        };
        Ok(Backup {
            about: BackupMetadata {
                cluster_id: header.cluster_id,
                replica_id: header.replica_id,
                time_ms: header.time_ms,
                version: header.version,
            },
            term: last.map_or(0, |last: LogId| last.leader_id.term),
            index: last.map_or(0, |last| last.index),
            members: membership.membership().nodes().map(member).collect(),
            has_known_hash: header.state_hash_version == M::state_hash_version()
                && header.state_hash == state.state_hash(),
            state,
            digest: HEXLOWER.encode(&content.chunks.digest()),
            is_sealed: content.chunks.is_sealed(),
        })
    }
}

fn read_header(content: &mut Content<'_>) -> Result<BackupHeader, BackupError> {
    let broken = |error: io::Error| BackupError::Content(format!("its header: {error}"));
    let mut length = [0; 4];
    content.read_exact(&mut length).map_err(broken)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > HEADER_BYTES_MAX {
        return Err(BackupError::Content(format!(
            "its header has {length} bytes, the limit is {HEADER_BYTES_MAX} (HEADER_BYTES_MAX)"
        )));
    }
    let mut bytes = Vec::new();
    let read = content.take(length as u64).read_to_end(&mut bytes);
    if read.map_err(broken)? < length {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    BackupHeader::decode(bytes.as_slice())
        .map_err(|error| BackupError::Content(format!("its header: {error}")))
}

fn unusable(error: &DecodeError) -> BackupError {
    BackupError::Content(error.to_string())
}

/// Concatenates the chunks of a file.
struct Content<'a> {
    chunks: ChunkReader<&'a mut dyn Read>,
    piece: Vec<u8>,
    position: usize,
    /// First defect found in the file.
    failure: Option<BackupError>,
}

impl Content<'_> {
    /// Reads and checks the rest of the file; returns its number of content bytes.
    fn drain(&mut self) -> u64 {
        let mut left = (self.piece.len() - self.position) as u64;
        while self.advance() {
            left += self.piece.len() as u64;
        }
        left
    }

    /// Loads the next chunk; false at the end or where the file is damaged.
    fn advance(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        match self.chunks.next() {
            Ok(Some(piece)) => {
                self.piece = piece;
                self.position = 0;
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.failure = Some(error);
                false
            }
        }
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position == self.piece.len() {
            if !self.advance() {
                return Ok(0);
            }
        }
        let taken = buffer.len().min(self.piece.len() - self.position);
        buffer[..taken].copy_from_slice(&self.piece[self.position..self.position + taken]);
        self.position += taken;
        Ok(taken)
    }
}
