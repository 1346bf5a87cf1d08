//! Build script: links the C++ standard library statically into `muster` if the compiler has it as an
//! archive.
//!
//! The binary then runs on hosts without the library, and starts faster: the dynamic linker need not resolve
//! its thousands of symbols in every supervisor and every command.

use std::env;
use std::error::Error;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const ARCHIVE: &str = "libstdc++.a";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let Some(archive) = archive() else {
        return Ok(());
    };
    // The linker takes the first folder that has the library in either form: this one contains only the
    // archive.
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    let link = folder.join(ARCHIVE);
    if link.symlink_metadata().is_ok() {
        std::fs::remove_file(&link)?;
    }
    symlink(archive, link)?;
    println!("cargo:rustc-link-search=native={}", folder.display());
    Ok(())
}

/// Path of the archive; a compiler without it answers with the bare name.
fn archive() -> Option<PathBuf> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .arg(format!("-print-file-name={ARCHIVE}"))
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    Some(path).filter(|path| path.is_absolute() && Path::exists(path))
}
