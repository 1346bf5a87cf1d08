//! Tests of the built program against a simulated driver (`fake_driver.c`), found by the linker at run time
//! like a real one.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const FIRST: &str = "GPU-00000000-0000-0000-0000-000000000001";
const SECOND: &str = "GPU-00000000-0000-0000-0000-000000000002";

/// A folder with a driver, and optionally with cuBLAS.
fn driver(has_blas: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_driver.c");
    let built = Command::new("cc")
        .args([
            "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
        ])
        .args([&library, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    if has_blas {
        symlink(&library, folder.path().join("libcublas.so")).unwrap();
    }
    folder
}

/// Runs the program with a library folder, faults of the GPUs, and arguments.
fn check(libraries: &Path, faults: &[(&str, &str)], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster-gpu-check"))
        .args(["--size", "32", "--seconds", "0"])
        .args(arguments)
        .env("LD_LIBRARY_PATH", libraries)
        .envs(faults.iter().copied())
        .output()
        .unwrap()
}

/// Its output and exit code.
fn text_and_code(output: &Output) -> (String, Option<i32>) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (text, output.status.code())
}

/// A metric behind the bar.
fn figure(text: &str, name: &str) -> f64 {
    let (_, figures) = text.trim().split_once('|').unwrap();
    let mut figures = figures.split(' ').filter_map(|text| text.split_once('='));
    let (_, value) = figures.find(|(found, _)| *found == name).unwrap();
    value.parse().unwrap()
}

#[test]
fn healthy_gpus_pass_and_every_figure_is_reported() {
    let driver = driver(true);
    let arguments = [FIRST, "--peers", SECOND, "--expected-tflops", "1"];
    let output = check(driver.path(), &[("FAKE_GPUS", "2")], &arguments);
    let (text, code) = text_and_code(&output);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with(&format!("GPU-CHECK OK - {FIRST}: 192 MiB in 5 patterns")));
    assert!(text.contains("128 products in half precision"), "{text}");
    assert_eq!(text.lines().count(), 1);
    assert_eq!(figure(&text, "miscompares"), 0.0);
    assert_eq!(figure(&text, "peers_direct"), 1.0);
    for name in ["gb_per_s", "from_gb_per_s", "peer_gb_per_s"] {
        assert!(figure(&text, name) > 0.1, "{name}: {text}");
    }
    let speed = figure(&text, "half_tflop_per_s") * 1e3;
    assert!(
        (figure(&text, "baseline_permille") - speed).abs() <= 51.0,
        "{text}"
    );
}

#[test]
fn all_gpus_are_checked_where_none_is_named_and_the_worst_counts() {
    let driver = driver(true);
    let arguments = ["--parts", "ways"];
    let (text, code) = text_and_code(&check(driver.path(), &[("FAKE_GPUS", "2")], &arguments));
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].contains(FIRST) && lines[1].contains(SECOND),
        "{text}"
    );
    let arguments = ["--parts", "memory", FIRST, SECOND];
    let (text, code) = text_and_code(&check(driver.path(), &[], &arguments));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains(&format!("UNKNOWN - {SECOND}: the driver does not list")));
}

#[test]
fn a_bit_that_flips_in_memory_is_counted_in_every_block() {
    let driver = driver(true);
    let faults = [("FAKE_MEMORY", "flips")];
    let output = check(driver.path(), &faults, &[FIRST, "--parts", "memory"]);
    let (text, code) = text_and_code(&output);
    assert_eq!(code, Some(2), "{text}");
    // One word of each of three blocks, in the pattern of ones.
    assert_eq!(figure(&text, "miscompares"), 3.0);
    assert!(
        text.contains("CRITICAL") && text.contains("3 results differ"),
        "{text}"
    );
}

#[test]
fn a_product_with_one_wrong_bit_among_many_is_found() {
    let driver = driver(true);
    let faults = [("FAKE_PRODUCT", "flips")];
    let output = check(driver.path(), &faults, &[FIRST, "--parts", "products"]);
    let (text, code) = text_and_code(&output);
    assert_eq!(code, Some(2), "{text}");
    // The 70th, the 140th and the 210th of 256: each is in its own sum, one of them the second precision's
    // first.
    assert_eq!(figure(&text, "miscompares"), 4.0, "{text}");
}

#[test]
fn slow_copies_are_reported_by_their_figure() {
    let driver = driver(true);
    let faults = [
        ("FAKE_GPUS", "2"),
        ("FAKE_PEERS", "apart"),
        ("FAKE_COPY_US", "50000"),
    ];
    let arguments = [FIRST, "--peers", SECOND, "--parts", "ways"];
    let (text, code) = text_and_code(&check(driver.path(), &faults, &arguments));
    assert_eq!(code, Some(0), "{text}");
    // 64 MiB in 50 ms and more.
    for name in ["gb_per_s", "from_gb_per_s", "peer_gb_per_s"] {
        let speed = figure(&text, name);
        assert!(speed > 0.1 && speed < 1.4, "{name}: {text}");
    }
    assert_eq!(figure(&text, "peers_direct"), 0.0);
    assert!(text.contains("through the host"), "{text}");
}

#[test]
fn a_failed_driver_call_is_named_and_counts_as_a_fault_of_the_gpu() {
    let driver = driver(true);
    for (call, named) in [
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync failed"),
        (
            "cuDevicePrimaryCtxRetain",
            "cuDevicePrimaryCtxRetain failed",
        ),
        (
            "cublasGemmEx",
            "cublasGemmEx failed: CUBLAS_STATUS_EXECUTION_FAILED",
        ),
    ] {
        let faults = [("FAKE_FAIL", call)];
        let parts = if call == "cublasGemmEx" {
            "products"
        } else {
            "memory"
        };
        let (text, code) =
            text_and_code(&check(driver.path(), &faults, &[FIRST, "--parts", parts]));
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(named), "{text}");
    }
    let faults = [("FAKE_FAIL", "cuMemcpyHtoDAsync_v2")];
    let (text, _) = text_and_code(&check(driver.path(), &faults, &[FIRST]));
    assert!(text.contains("uncorrectable ECC error"), "{text}");
}

#[test]
fn a_gpu_that_cannot_be_checked_is_unknown_with_the_reason() {
    let nothing = tempfile::tempdir().unwrap();
    // On a machine with a real driver the program finds that one despite the variable.
    if !Path::new("/dev/nvidiactl").exists() {
        let (text, code) = text_and_code(&check(nothing.path(), &[], &[]));
        assert_eq!(code, Some(3), "{text}");
        assert!(text.starts_with("GPU-CHECK UNKNOWN - libcuda is not on this host"));
        let driver = driver(false);
        let (text, code) =
            text_and_code(&check(driver.path(), &[], &[FIRST, "--parts", "products"]));
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("libcublas is not on this host"), "{text}");
    }
    let driver = driver(true);
    let unknown = |faults: &[(&str, &str)], named: &str| {
        let (text, code) = text_and_code(&check(driver.path(), faults, &[]));
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains(named), "{text}");
    };
    unknown(&[("FAKE_GPUS", "0")], "the driver lists no GPU");
    unknown(
        &[("FAKE_FAIL", "cuInit")],
        "the NVIDIA driver does not start: CUDA_ERROR_ECC",
    );
    unknown(
        &[("FAKE_FREE_MIB", "60")],
        "60 MiB of the GPU's memory are free",
    );
}

#[test]
fn a_gpu_without_peers_is_checked_alone_as_a_worker_asks() {
    let driver = driver(true);
    let arguments = [FIRST, "--peers", "", "--parts", "ways"];
    let (text, code) = text_and_code(&check(driver.path(), &[], &arguments));
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("peer"), "{text}");
}
