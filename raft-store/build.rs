//! Build script: reports a missing RocksDB archive with its remedy; the linking crate would only report a missing
//! library.

use std::path::Path;

/// Folder of the archive, as `.cargo/config.toml` names it.
const FOLDER: &str = "ROCKSDB_LIB_DIR";

fn main() -> Result<(), String> {
    println!("cargo:rerun-if-env-changed={FOLDER}");
    let Some(folder) = std::env::var_os(FOLDER) else {
        return Ok(()); // RocksDB is compiled by its crate
    };
    let archive = Path::new(&folder).join("librocksdb.a");
    println!("cargo:rerun-if-changed={}", archive.display());
    if archive.is_file() {
        return Ok(());
    }
    Err(format!(
        "{} is missing: `tools/scripts/bootstrap` compiles RocksDB once for this machine",
        archive.display()
    ))
}
