//! Compiles every schema file with protox (pure Rust: no `protoc` is needed to build).

use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("schema");
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    println!("cargo:rerun-if-changed=schema");

    let descriptors = protox::compile(&files, [root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("muster.bin"), prost_bytes(&descriptors))?;
    tonic_prost_build::configure()
        .bytes(".")
        // Ordered maps: the same message has the same bytes, and the core's maps are taken over as they are.
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

fn prost_bytes(descriptors: &impl prost::Message) -> Vec<u8> {
    descriptors.encode_to_vec()
}
