//! Contents of a bundle while it is collected.

use std::fmt::Display;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::failure::Failure;

/// Version of the bundle's layout.
const FORMAT: u32 = 1;
/// Permissions of the files: a bundle is for its owner alone.
const MODE: u32 = 0o600;

/// Files, and missing parts.
#[derive(Debug, Default)]
pub(super) struct Collection {
    files: Vec<(String, String)>,
    missing: Vec<(String, String)>,
}

impl Collection {
    /// Adds a document, or records why it is missing. Secrets are redacted.
    pub(super) fn add<T: Serialize>(&mut self, name: &str, read: Result<T, impl Display>) {
        let value = read.map_err(|error| error.to_string()).and_then(|value| {
            let value = serde_json::to_value(value).map_err(|error| error.to_string())?;
            let value = muster_service::logging::redact_value(value);
            serde_json::to_string_pretty(&value).map_err(|error| error.to_string())
        });
        match value {
            Ok(text) => self.files.push((name.to_owned(), text + "\n")),
            Err(why) => self.miss(name, &why),
        }
    }

    /// Adds a text. Secrets are redacted.
    pub(super) fn add_text(&mut self, name: &str, text: &str) {
        self.files
            .push((name.to_owned(), muster_service::logging::redact(text)));
    }

    /// Records a missing part.
    pub(super) fn miss(&mut self, name: &str, why: &str) {
        self.missing
            .push((name.to_owned(), muster_service::logging::redact(why)));
    }

    /// The missing parts, with reasons.
    pub(super) fn missing(&self) -> &[(String, String)] {
        &self.missing
    }

    /// Number of files.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// Writes everything below one folder as `tar.gz`, the manifest first.
    pub(super) fn write(
        &self,
        out: impl Write,
        folder: &str,
        made_at: &str,
        time_s: u64,
    ) -> Result<(), Failure> {
        let manifest = self.manifest(made_at);
        let manifest = serde_json::to_string_pretty(&manifest);
        let manifest = manifest.map_err(|error| Failure::internal(&error))?;
        let written = || -> io::Result<()> {
            let mut archive = Builder::new(GzEncoder::new(out, Compression::default()));
            let manifest = ("manifest.json", &manifest);
            let files = self.files.iter().map(|(name, text)| (name.as_str(), text));
            for (name, text) in std::iter::once(manifest).chain(files) {
                let mut header = header(text, time_s);
                archive.append_data(&mut header, format!("{folder}/{name}"), text.as_bytes())?;
            }
            archive.into_inner()?.finish()?.flush()
        };
        written().map_err(|error| Failure::new(format!("cannot write the bundle: {error}")))
    }

    fn manifest(&self, made_at: &str) -> Value {
        let files = self.files.iter();
        let files = files.map(|(name, text)| json!({"name": name, "bytes": text.len()}));
        let missing = self.missing.iter();
        let missing = missing.map(|(name, why)| json!({"name": name, "why": why}));
        json!({
            "format": FORMAT,
            "made_at": made_at,
            "made_by": concat!("muster ", env!("CARGO_PKG_VERSION")),
            "files": files.collect::<Vec<Value>>(),
            "missing": missing.collect::<Vec<Value>>(),
        })
    }
}

fn header(text: &str, time_s: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(MODE);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(time_s);
    header.set_size(text.len() as u64);
    header
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_collection_has_no_secrets_and_names_missing_parts() {
        let mut collection = Collection::default();
        let labels = json!({"labels": {"token": "hunter2", "rack": "r1"}});
        collection.add("a.json", Ok::<_, String>(labels));
        collection.add("b.json", Err::<Value, _>("token=hunter2 is wrong"));
        collection.add_text("c.txt", "password: hunter2\nfine\n");
        let text = format!("{collection:?} {}", collection.manifest("now"));
        assert!(!text.contains("hunter2"), "{text}");
        let manifest = collection.manifest("now");
        assert_eq!(manifest["missing"][0]["name"], "b.json");
        assert_eq!(manifest["files"][1]["name"], "c.txt");
        assert!(text.contains("r1") && text.contains("fine"));
    }

    #[test]
    fn tar_reads_the_bundle_and_long_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let long_name = format!("{}/b.txt", "x".repeat(120));
        let mut collection = Collection::default();
        collection.add_text("a.txt", "fine\n");
        collection.add_text(&long_name, "");
        let out = fs::File::create(&path).unwrap();
        assert!(collection.write(out, "it", "now", 1_000_000_000).is_ok());
        let read = Command::new("tar")
            .arg("-xzf")
            .arg(&path)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(read.status.success(), "{read:?}");
        assert!(read.stderr.is_empty(), "{read:?}");
        let folder = folder.path().join("it");
        assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "fine\n");
        assert_eq!(fs::read_to_string(folder.join(long_name)).unwrap(), "");
        assert!(folder.join("manifest.json").exists());
    }
}
