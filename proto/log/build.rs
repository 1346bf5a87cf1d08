//! Build script: compiles the schema of the log with `protoc`, which `tools/scripts/bootstrap` installs.

/// Schema files of the log.
const FILES: [&str; 2] = [
    "schema/muster/log/v1/command.proto",
    "schema/muster/log/v1/state.proto",
];
/// Folders of schema files: the log's, and those of the client interface, which it imports.
const FOLDERS: [&str; 2] = ["schema", "../schema"];

fn main() -> std::io::Result<()> {
    for folder in FOLDERS {
        println!("cargo:rerun-if-changed={folder}");
    }
    prost_build::Config::new()
        .bytes(["."])
        // Ordered maps: equal messages have equal bytes, and the core's maps are moved unchanged.
        .btree_map(["."])
        .extern_path(".muster.v1", "::muster_proto::v1")
        .compile_protos(&FILES, &FOLDERS)
}
