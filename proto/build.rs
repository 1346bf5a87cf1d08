//! Build script: compiles the schema with `protoc`, which `tools/scripts/bootstrap` installs.

use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("schema");
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    println!("cargo:rerun-if-changed=schema");

    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut protoc = prost_build::Config::new();
    // For server reflection.
    protoc.file_descriptor_set_path(out.join("muster.bin"));
    let descriptors = protoc.load_fds(&files, &[root])?;
    tonic_prost_build::configure()
        .bytes(".")
        // Ordered maps: equal messages have equal bytes, and the core's maps are moved unchanged.
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(path);
        }
    }
    Ok(())
}
