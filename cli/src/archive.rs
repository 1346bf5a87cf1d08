//! Writer of `tar.gz` archives of small texts, in the ustar format of POSIX, which every tool reads.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Size in bytes of a header, and of the blocks that contents are padded to.
const BLOCK: usize = 512;
/// Maximum size of a name in bytes.
const NAME_MAX: usize = 100;
/// Position of the checksum in a header.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Writes files one after the other.
pub(crate) struct Archive<W: Write> {
    out: GzEncoder<W>,
    time_s: u64,
}

impl<W: Write> Archive<W> {
    /// Sets the time of all entries, in seconds since the Unix epoch.
    pub(crate) fn new(out: W, time_s: u64) -> Self {
        Self {
            out: GzEncoder::new(out, Compression::default()),
            time_s,
        }
    }

    /// Adds a file.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.out
            .write_all(&header(name, content.len(), self.time_s)?)?;
        self.out.write_all(content)?;
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        self.out.write_all(&vec![0; rest])
    }

    /// Finishes the archive, and returns the underlying writer.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.finish()
    }
}

fn header(name: &str, bytes: usize, time_s: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() > NAME_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{name}` is longer than {NAME_MAX} bytes (NAME_MAX)"),
        ));
    }
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{bytes:011o}\0"));
    put(136, &format!("{time_s:011o}\0"));
    put(CHECKSUM.start, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let mut archive = Archive::new(fs::File::create(&path).unwrap(), 1_000_000_000);
        let long = "x".repeat(3 * BLOCK + 1);
        let files = [("a/empty", ""), ("a/long.txt", &long), ("b.txt", "b\n")];
        for (name, content) in files {
            archive.add(name, content.as_bytes()).unwrap();
        }
        archive.finish().unwrap();
        let read = Command::new("tar")
            .arg("-xzf")
            .arg(&path)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(read.status.success(), "{read:?}");
        assert!(read.stderr.is_empty(), "{read:?}");
        for (name, content) in files {
            let read = fs::read_to_string(folder.path().join(name)).unwrap();
            assert_eq!(read, content, "{name}");
        }
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        let mut archive = Archive::new(Vec::new(), 0);
        assert!(archive.add(&"x".repeat(NAME_MAX), b"").is_ok());
        assert!(archive.add(&"x".repeat(NAME_MAX + 1), b"").is_err());
    }
}
