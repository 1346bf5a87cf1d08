//! Envelope of a backup file: a sequence of chunks, each bound by a digest to everything before it.
//!
//! ```text
//! "MUSTBACK" | version: u32 LE | sealing: u8 | nonce: 19 bytes |
//!     { last: u8 | length: u32 LE | bytes | digest: 32 bytes } ...
//! ```
//!
//! A chunk's digest is the SHA-256 of the preceding digest, the chunk's head and its stored bytes; the
//! first one follows the digest of the file's head. So the last digest is that of the whole file, and a
//! chunk that was changed, moved, omitted or truncated is located with or without the key. Sealed bytes are
//! those of XChaCha20-Poly1305 in the STREAM construction: bytes whose digest matches but that cannot be
//! decrypted were sealed with another key.

use std::io::{self, Read, Write};

use chacha20poly1305::aead::stream::{DecryptorBE32, EncryptorBE32};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};
use sha2::{Digest as _, Sha256};

use crate::recovery::backup::error::BackupError;
use crate::recovery::backup::key::Key;

/// Version of the file format.
pub(super) const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"MUSTBACK";
/// Bytes of content in one chunk.
const CHUNK_BYTES: usize = 256 * 1024;
/// Bytes that sealing adds to a chunk.
const TAG_BYTES: usize = 16;
/// Random bytes in the head of a sealed file.
const NONCE_BYTES: usize = 19;
const HEAD_BYTES: usize = MAGIC.len() + 4 + 1 + NONCE_BYTES;
const DIGEST_BYTES: usize = 32;
/// Bytes before a chunk's content.
const CHUNK_HEAD_BYTES: usize = 5;

const PLAIN: u8 = 0;
const SEALED: u8 = 1;

type Digest = [u8; DIGEST_BYTES];

/// Splits the bytes written to it into chunks.
pub(super) struct ChunkWriter<W: Write> {
    out: W,
    sealer: Option<EncryptorBE32<XChaCha20Poly1305>>,
    digest: Digest,
    pending: Vec<u8>,
}

impl<W: Write> ChunkWriter<W> {
    /// Writes the head. With a key, everything after it is sealed.
    pub(super) fn start(mut out: W, key: Option<&Key>) -> io::Result<Self> {
        let nonce = key.map_or([0; NONCE_BYTES], |_| fresh_nonce());
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.push(if key.is_some() { SEALED } else { PLAIN });
        head.extend_from_slice(&nonce);
        out.write_all(&head)?;
        let sealer = key.map(|key| {
            let cipher = XChaCha20Poly1305::new(key.bytes().into());
            EncryptorBE32::from_aead(cipher, (&nonce).into())
        });
        Ok(Self {
            out,
            sealer,
            digest: Sha256::digest(&head).into(),
            pending: Vec::with_capacity(CHUNK_BYTES),
        })
    }

    /// Writes the last chunk; returns the file and the digest of the whole file.
    pub(super) fn finish(mut self) -> io::Result<(W, Digest)> {
        let content = std::mem::take(&mut self.pending);
        let sealed = match self.sealer.take() {
            Some(sealer) => sealer.encrypt_last(content.as_slice()).map_err(unsealed)?,
            None => content,
        };
        self.emit(&sealed, true)?;
        Ok((self.out, self.digest))
    }

    fn emit(&mut self, bytes: &[u8], is_last: bool) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut head = [0; CHUNK_HEAD_BYTES];
        head[0] = u8::from(is_last);
        head[1..].copy_from_slice(&length.to_le_bytes());
        self.digest = chained(&self.digest, head, bytes);
        self.out.write_all(&head)?;
        self.out.write_all(bytes)?;
        self.out.write_all(&self.digest)
    }
}

impl<W: Write> Write for ChunkWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk is held back until more bytes follow, because the last chunk carries a mark.
        if self.pending.len() == CHUNK_BYTES {
            let content = std::mem::take(&mut self.pending);
            let sealed = match &mut self.sealer {
                Some(sealer) => sealer.encrypt_next(content.as_slice()).map_err(unsealed)?,
                None => content,
            };
            self.emit(&sealed, false)?;
            self.pending.reserve(CHUNK_BYTES);
        }
        let taken = bytes.len().min(CHUNK_BYTES - self.pending.len());
        self.pending.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads chunks and checks each one.
pub(super) struct ChunkReader<R: Read> {
    input: R,
    opener: Option<DecryptorBE32<XChaCha20Poly1305>>,
    is_sealed: bool,
    digest: Digest,
    /// Offset of the next byte in the file.
    offset: u64,
    chunk: u64,
    ended: bool,
}

impl<R: Read> ChunkReader<R> {
    /// Reads the head.
    pub(super) fn start(mut input: R, key: Option<&Key>) -> Result<Self, BackupError> {
        let mut head = [0; HEAD_BYTES];
        let read = fill(&mut input, &mut head)?;
        if !head[..read].starts_with(&MAGIC[..read.min(MAGIC.len())]) || read == 0 {
            return Err(BackupError::NotABackup);
        }
        if read < HEAD_BYTES {
            return Err(cut("the head", read as u64));
        }
        let (_, rest) = head.split_at(MAGIC.len());
        let (version, rest) = rest.split_at(4);
        let found = u32::from_le_bytes(version.try_into().unwrap_or_default());
        if found > VERSION {
            return Err(BackupError::NewerFormat {
                found,
                supported: VERSION,
            });
        }
        let opener = match (rest[0], key) {
            (PLAIN, _) => None,
            (SEALED, Some(key)) => {
                let cipher = XChaCha20Poly1305::new(key.bytes().into());
                let nonce: [u8; NONCE_BYTES] = rest[1..].try_into().unwrap_or_default();
                Some(DecryptorBE32::from_aead(cipher, (&nonce).into()))
            }
            (SEALED, None) => return Err(BackupError::KeyMissing),
            (sealing, _) => {
                return Err(BackupError::Damaged {
                    place: format!("the head, byte {}", MAGIC.len() + 4),
                    detail: format!("unknown sealing method {sealing}"),
                });
            }
        };
        Ok(Self {
            input,
            is_sealed: opener.is_some(),
            opener,
            digest: Sha256::digest(head).into(),
            offset: HEAD_BYTES as u64,
            chunk: 0,
            ended: false,
        })
    }

    /// Returns the content of the next chunk, or none after the last one, once end of file is confirmed.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, BackupError> {
        if self.ended {
            return Ok(None);
        }
        let (at, number) = (self.offset, self.chunk);
        let place = || format!("chunk {number}, from byte {at} on");
        let mut head = [0; CHUNK_HEAD_BYTES];
        self.read(&mut head, &place)?;
        let [last, l0, l1, l2, l3] = head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > CHUNK_BYTES + TAG_BYTES || last > 1 {
            return Err(BackupError::Damaged {
                place: place(),
                detail: "invalid chunk head".to_owned(),
            });
        }
        let mut bytes = vec![0; length];
        self.read(&mut bytes, &place)?;
        let mut stored = [0; DIGEST_BYTES];
        self.read(&mut stored, &place)?;
        self.digest = chained(&self.digest, head, &bytes);
        if self.digest != stored {
            return Err(BackupError::Damaged {
                place: place(),
                detail: "its digest does not match".to_owned(),
            });
        }
        self.chunk += 1;
        let is_last = last == 1;
        if is_last {
            self.ended = true;
            self.expect_end()?;
        }
        self.open(bytes, is_last).map(Some)
    }

    /// Digest of everything read so far; at the end, of the whole file.
    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether the content is sealed.
    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    fn open(&mut self, bytes: Vec<u8>, is_last: bool) -> Result<Vec<u8>, BackupError> {
        let opened = match (&mut self.opener, is_last) {
            (None, _) => return Ok(bytes),
            (Some(opener), false) => opener.decrypt_next(bytes.as_slice()),
            (opener @ Some(_), true) => match opener.take() {
                Some(opener) => opener.decrypt_last(bytes.as_slice()),
                None => return Ok(bytes),
            },
        };
        opened.map_err(|_| BackupError::WrongKey)
    }

    fn expect_end(&mut self) -> Result<(), BackupError> {
        let mut more = [0; 1];
        if fill(&mut self.input, &mut more)? == 0 {
            return Ok(());
        }
        Err(BackupError::Damaged {
            place: format!("byte {}", self.offset),
            detail: "data follows the last chunk".to_owned(),
        })
    }

    fn read(&mut self, buffer: &mut [u8], place: &dyn Fn() -> String) -> Result<(), BackupError> {
        let read = fill(&mut self.input, buffer)?;
        self.offset += read as u64;
        if read < buffer.len() {
            return Err(cut(&place(), self.offset));
        }
        Ok(())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a nonce must never be reused with the same key"
)]
fn fresh_nonce() -> [u8; NONCE_BYTES] {
    rand::random()
}

fn chained(before: &Digest, head: [u8; CHUNK_HEAD_BYTES], bytes: &[u8]) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(head);
    hasher.update(bytes);
    hasher.finalize().into()
}

fn cut(place: &str, bytes: u64) -> BackupError {
    BackupError::Cut {
        place: place.to_owned(),
        bytes,
    }
}

fn unsealed(_: chacha20poly1305::Error) -> io::Error {
    io::Error::other("a chunk could not be sealed: the file has too many")
}

/// Reads until the buffer is full or the input ends; returns the number of bytes read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, BackupError> {
    let mut read = 0;
    while read < buffer.len() {
        match input.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(BackupError::Read(error)),
        }
    }
    Ok(read)
}
