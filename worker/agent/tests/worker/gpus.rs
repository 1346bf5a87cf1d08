//! Tests of the GPU helper process: its answers, and recovery when it is killed, hangs or loses its agent.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use muster_model::command::GpuHealth;
use muster_model::time::MonotonicMs;
use muster_worker::GpuConfig;
use muster_worker::clock::LeaseClock;
use muster_worker::monitor::gpu::{
    GpuBackend, GpuError, HealthChange, HelpedBackend, HelperProgram, SimulatedBackend, Timeline,
    faulted,
};
use muster_worker::supervisor::testing::HangingFolder;
use rustix::process::Signal;

use crate::agent::{Host, signal_process};
use crate::support::leader::Leader;
use crate::support::{FIXTURE, eventually, is_gone};

/// Timeout for a helper that hangs.
const SHORT: Duration = Duration::from_secs(2);
/// Timeout for a helper that answers, on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const TIMELINE: &str = "0,1,memory,2048\n0,0,xid-79,gone\n0,1,metric:temp_core.over_max_c,3\n\
                        0,1,metric:DCGM_FI_DEV_GPU_TEMP,93\n";

/// A driver with two GPUs.
fn driver() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("count"), "2").unwrap();
    std::fs::write(folder.path().join("timeline"), TIMELINE).unwrap();
    folder
}

fn open(folder: &Path, answer_max: Duration) -> Result<HelpedBackend, GpuError> {
    HelpedBackend::open(HelperProgram {
        program: FIXTURE.into(),
        arguments: vec!["ask-simulated-gpus".into(), folder.into()],
        answer_max,
    })
}

/// A backend with a short timeout, within which a busy machine may fail to start the helper.
fn impatient(folder: &Path) -> HelpedBackend {
    let mut opened = None;
    eventually("a helper", || {
        opened = open(folder, SHORT).ok();
        opened.is_some()
    });
    opened.unwrap()
}

fn kill(backend: &HelpedBackend, signal: Signal) {
    signal_process(backend.helper_pid().unwrap().cast_signed(), signal);
}

/// Waits until a backend has reported `count` changes.
fn changes(backend: &mut dyn GpuBackend, count: usize) -> Vec<HealthChange> {
    let mut all = Vec::new();
    eventually("changes", || {
        all.extend(backend.observe(Duration::ZERO).unwrap());
        all.len() >= count
    });
    all
}

#[test]
fn a_helper_answers_what_its_backend_does() {
    let folder = driver();
    let mut helped = open(folder.path(), LONG).unwrap();
    let timeline = Timeline::parse(TIMELINE).unwrap();
    let mut own = SimulatedBackend::new("host-1", 2, "H100", 81_920, timeline)
        .with_pci_addresses(&["0000:0f:00.0".to_owned()])
        .unwrap();
    assert_eq!(helped.inventory(), own.inventory());
    assert_eq!(helped.pci_addresses(), own.pci_addresses());
    assert_eq!(helped.device_numbers(), own.device_numbers());
    assert_eq!(helped.is_simulated(), own.is_simulated());
    assert_eq!(changes(&mut helped, 1), changes(&mut own, 1));
    let gpus = own.inventory().to_vec();
    let order = (gpus[1].uuid, faulted("ecc-uncorrectable", "by an admin"));
    helped.injector().send(order.clone()).unwrap();
    assert_eq!(changes(&mut helped, 1), [order]);
    for gpu in &gpus {
        let (theirs, ours) = (helped.memory(), own.memory());
        assert_eq!(theirs.used(gpu.uuid).unwrap(), ours.used(gpu.uuid).unwrap());
        let now = MonotonicMs(7);
        let theirs = helped.sensors().read(gpu, now).unwrap();
        assert_eq!(theirs, own.sensors().read(gpu, now).unwrap());
    }
    assert_eq!(helped.memory().used(gpus[1].uuid).unwrap().0, 2_048);
}

#[test]
fn a_host_without_a_driver_is_distinguished_from_one_whose_driver_fails() {
    let folder = driver();
    std::fs::write(folder.path().join("count"), "many").unwrap();
    let error = open(folder.path(), LONG).err().unwrap();
    assert!(matches!(error, GpuError::Refused(_)), "{error:?}");
    std::fs::remove_file(folder.path().join("count")).unwrap();
    let error = open(folder.path(), LONG).err().unwrap();
    assert!(matches!(error, GpuError::NoDriver(_)), "{error:?}");
    let absent = HelperProgram {
        program: "/nonexistent/muster".into(),
        ..HelperProgram::of_this_binary()
    };
    let error = HelpedBackend::open(absent).err().unwrap();
    assert!(matches!(error, GpuError::HelperStart(_)), "{error:?}");
}

#[test]
fn a_helper_that_is_killed_is_replaced_by_the_next_question() {
    let folder = driver();
    let backend = open(folder.path(), LONG).unwrap();
    let first = backend.helper_pid().unwrap();
    kill(&backend, Signal::KILL);
    let memory = backend.memory();
    let gpu = backend.inventory()[1].uuid;
    eventually("the next helper", || memory.used(gpu).is_ok());
    let next = backend.helper_pid().unwrap();
    assert_ne!(next, first);
    assert!(is_gone(&first.to_string()) && !is_gone(&next.to_string()));
}

#[test]
fn a_hanging_helper_is_abandoned_in_time_and_replaced() {
    let folder = driver();
    let mut backend = impatient(folder.path());
    changes(&mut backend, 1);
    let hangs = backend.helper_pid().unwrap();
    kill(&backend, Signal::STOP);
    let clock = LeaseClock::start();
    let began = clock.now();
    let error = backend.observe(Duration::ZERO).unwrap_err();
    let took = Duration::from_millis(clock.now().0 - began.0);
    assert!(took >= SHORT && took < LONG / 2, "{took:?}");
    let GpuError::Helper { pid, what } = error else {
        unreachable!("it did not answer: {error}")
    };
    assert_eq!(pid, hangs);
    assert!(what.contains("within 2s"), "{what}");
    assert!(is_gone(&hangs.to_string()));
    eventually("an answer", || backend.observe(Duration::ZERO).is_ok());
}

#[test]
fn a_gpu_that_the_next_helper_does_not_find_is_lost_until_it_is_repaired() {
    let folder = driver();
    let mut backend = open(folder.path(), LONG).unwrap();
    changes(&mut backend, 1);
    std::fs::write(folder.path().join("timeline"), "").unwrap();
    std::fs::write(folder.path().join("count"), "1").unwrap();
    kill(&backend, Signal::KILL);
    let gpu = backend.inventory()[1].uuid;
    let mut all = Vec::new();
    let mut observe = |backend: &mut HelpedBackend, expected: usize| {
        eventually("changes", || {
            // One request fails with the killed helper.
            all.extend(backend.observe(Duration::ZERO).unwrap_or_default());
            all.len() >= expected
        });
        std::mem::take(&mut all)
    };
    let lost = (gpu, faulted("gpu-lost", "no longer listed by the driver"));
    assert_eq!(observe(&mut backend, 1), std::slice::from_ref(&lost));
    assert_eq!(backend.observe(Duration::ZERO).unwrap(), vec![]);
    let repaired = (gpu, GpuHealth::Healthy);
    backend.injector().send(repaired.clone()).unwrap();
    // It is declared repaired but is not.
    assert_eq!(observe(&mut backend, 2), [repaired.clone(), lost]);
    std::fs::write(folder.path().join("count"), "2").unwrap();
    backend.injector().send(repaired.clone()).unwrap();
    assert_eq!(observe(&mut backend, 1), [repaired]);
    assert_eq!(backend.observe(Duration::ZERO).unwrap(), vec![]);
}

#[test]
fn while_a_helper_hangs_in_the_kernel_no_other_one_is_started() {
    let folder = driver();
    let count = folder.path().join("count");
    let hanging = match HangingFolder::mount(&folder.path().join("hanging")) {
        Ok(hanging) => hanging,
        Err(error) => {
            let why = format!("skipped: no file system can be mounted that hangs: {error}");
            drop(writeln!(std::io::stderr(), "{why}"));
            return;
        }
    };
    let backend = impatient(folder.path());
    let (memory, gpu) = (backend.memory(), backend.inventory()[1].uuid);
    std::fs::remove_file(&count).unwrap();
    symlink(folder.path().join("hanging/count"), &count).unwrap();
    kill(&backend, Signal::KILL);
    let mut hangs = None;
    eventually("a helper that cannot be killed", || {
        if let Err(GpuError::HelperHangs(pid)) = memory.used(gpu) {
            hangs = Some(pid);
        }
        hangs.is_some()
    });
    let hangs = hangs.unwrap();
    assert!(hanging.hangs());
    let clock = LeaseClock::start();
    let began = clock.now();
    for _ in 0..10 {
        let error = memory.used(gpu).unwrap_err();
        assert!(matches!(error, GpuError::HelperHangs(pid) if pid == hangs));
    }
    assert!(Duration::from_millis(clock.now().0 - began.0) < SHORT);
    assert_eq!(backend.helper_pid(), None);
    std::fs::remove_file(&count).unwrap();
    std::fs::write(&count, "2").unwrap();
    drop(hanging);
    eventually("an answer", || memory.used(gpu).is_ok());
    assert!(is_gone(&hangs.to_string()));
}

/// The log of this process.
fn log() -> Arc<Mutex<Vec<u8>>> {
    static LOG: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Arc::<Mutex<Vec<u8>>>::default();
        let writes = Arc::clone(&log);
        let logging = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || Lines(Arc::clone(&writes)));
        logging.init();
        log
    });
    Arc::clone(log)
}

struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn log_lines_of_a_helper_keep_their_level() {
    let log = log();
    let folder = driver();
    let backend = open(folder.path(), LONG).unwrap();
    let of_helper = format!("helper={}", backend.helper_pid().unwrap());
    let logged = |level: &str, text: &str| {
        eventually(text, || {
            let log = String::from_utf8(log.lock().unwrap().clone()).unwrap();
            let is_it = |line: &str| {
                line.contains(level) && line.contains(text) && line.contains(&of_helper)
            };
            log.lines().any(is_it)
        });
    };
    logged("WARN", "output of a library");
    logged("ERROR", "GPU queried");
    logged("ERROR", r#"{"index":3}"#);
}

#[test]
fn a_helper_exits_with_its_agent() {
    let folder = driver();
    let mut agent = Command::new(FIXTURE)
        .arg("hold-gpus")
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut helper = String::new();
    let mut lines = BufReader::new(agent.stdout.take().unwrap());
    lines.read_line(&mut helper).unwrap();
    assert!(!is_gone(helper.trim()));
    agent.kill().unwrap();
    agent.wait().unwrap();
    eventually("the helper's end", || is_gone(helper.trim()));
}

#[test]
fn a_helper_exits_with_its_backend() {
    let folder = driver();
    let backend = open(folder.path(), LONG).unwrap();
    let helper = backend.helper_pid().unwrap().to_string();
    assert!(!is_gone(&helper));
    drop(backend);
    assert!(is_gone(&helper));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_asks_nvml_through_a_helper_and_offers_no_gpus_where_there_is_no_driver() {
    if Path::new("/dev/nvidiactl").exists() {
        // With a driver the host's own GPUs are offered.
        return;
    }
    let leader = Leader::start(3).await;
    let _host = Host::start_with(&[&leader], |config, _| config.gpus = GpuConfig::Auto);
    let hello = leader.eventually("the greeting", |inner| inner.hellos.first().cloned());
    assert!(hello.await.registration.unwrap().gpus.is_empty());
    let mut refuses = Host::start_with(&[&leader], |config, _| config.gpus = GpuConfig::Nvml);
    let status = refuses.agent.wait().unwrap();
    assert!(!status.success());
    let mut error = String::new();
    let mut stderr = BufReader::new(refuses.agent.stderr.take().unwrap());
    stderr.read_line(&mut error).unwrap();
    assert!(error.contains("opening the GPUs failed"), "{error}");
}
