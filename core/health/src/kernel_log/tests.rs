//! Lines as written by drivers and kernels, and their interpretation.

use muster_model::ids::GpuUuid;

use super::*;

const BOOT: &str = "5f1c7a3e-0000-4000-8000-000000000001";

fn bus(text: &str) -> BusId {
    BusId::parse(text).expect("a place")
}

fn scanner(trust: TrustedWriters) -> Scanner {
    let mut buses = BusMap::default();
    buses.learn(bus("0000:18:00"), GpuUuid(0x18));
    buses.learn(bus("0000:0f:00"), GpuUuid(0x0f));
    Scanner::new(trust, Cursor::default(), buses)
}

/// Interpretation of a kernel line, in one line.
fn scan_line(line: &str) -> String {
    let mut scanner = scanner(TrustedWriters::Kernel);
    let raw = format!("3,1,1000,-;{line}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:18:00.0\n");
    let scanned = scanner.read(BOOT, &raw).expect("a record");
    scanned
        .event
        .map_or_else(|| "nothing".to_owned(), |event| describe(&event))
}

fn describe(event: &Event) -> String {
    match event {
        Event::Xid { bus, gpu, xid } => {
            let mut text = format!("xid {} at {bus}", xid.code);
            let mut add = |more: String| text.push_str(&more);
            if let Some(gpu) = gpu {
                add(format!(" of {:x}", gpu.0));
            }
            if let Some(process) = &xid.process {
                add(format!(" by {}", process.pid));
                if let Some(name) = &process.name {
                    add(format!(" {name}"));
                }
            }
            if let Some(SmLocation { gpc, tpc, sm }) = xid.place {
                add(format!(" in {gpc}/{tpc}/{sm}"));
            }
            if let Some(link) = xid.link {
                add(format!(" link {link}"));
            }
            if let Some(is_fatal) = xid.is_fatal {
                add(format!(" fatal {is_fatal}"));
            }
            if !xid.words.is_empty() {
                add(format!(" {:x?}", xid.words));
            }
            if let Some(recovery) = xid.recovery {
                add(format!(" wants {recovery}"));
            }
            text
        }
        Event::Sxid { bus, sxid } => format!(
            "sxid {} at {bus} link {:?} fatal {:?}",
            sxid.code, sxid.link, sxid.is_fatal
        ),
        Event::Host(sign) => {
            let at = sign
                .bus
                .map_or_else(String::new, |bus| format!(" at {bus}"));
            format!("{} {} {}{at}", sign.rule, sign.metric, sign.value)
        }
    }
}

/// Forms of XID lines of many driver releases.
#[test]
fn lines_of_the_gpu_driver_are_read() {
    for (line, expected) in [
        (
            "NVRM: Xid (PCI:0000:0f:00): 94, pid=7194, name=python3, Ch 00000008",
            "xid 94 at 0000:0f:00 of f by 7194 python3",
        ),
        (
            "NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask 00000101, intr 10000000",
            "xid 31 at 0000:03:00",
        ),
        (
            "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "xid 79 at 0000:05:00",
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.",
            "xid 79 at 0000:18:00 of 18",
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 43, pid=41, Ch 00000018",
            "xid 43 at 0000:18:00 of 18 by 41",
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 48",
            "xid 48 at 0000:18:00 of 18",
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for \
             remapping, reset gpu to activate.",
            "xid 63 at 0000:18:00 of 18",
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 13, pid=900, name=train, Graphics SM Warp Exception on (GPC 1, TPC 3, \
             SM 0): Out Of Range Address",
            "xid 13 at 0000:18:00 of 18 by 900 train in 1/3/0",
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 31, pid=7, name=a b, Ch 00000008, intr 00000000. MMU Fault: ENGINE \
             GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7fc0_0000. Fault is of type FAULT_PDE ACCESS_TYPE_READ",
            "xid 31 at 0000:18:00 of 18 by 7 a b",
        ),
        (
            "NVRM: Xid (PCI:0000:1b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on \
             link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            "xid 74 at 0000:1b:00 link 6 fatal true [10000, 0, 0, 0, 0, 0, 0]",
        ),
        (
            "NVRM: Xid (PCI:0001:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 \
             0x00000000 0x00000000)",
            "xid 149 at 0001:01:00 link 8 fatal true [4505c6, 0, 0, 0]",
        ),
        (
            "NVRM: Xid (PCI:0001:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 02 (0x00000006 0x80000000)",
            "xid 145 at 0001:01:00 link 2 fatal false [6, 80000000]",
        ),
        (
            "NVRM: Xid (PCI:0000:0f:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "xid 154 at 0000:0f:00 of f wants GPU Reset Required",
        ),
        (
            "NVRM: Xid (PCI:0000:0f:00): 154, pid=3, name=x, GPU recovery action changed from 0x1 (GPU Reset \
             Required) to 0x2 (Node Reboot Required)",
            "xid 154 at 0000:0f:00 of f by 3 x wants Node Reboot Required",
        ),
        (
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=3256, name=nvidia-smi, Timeout after 6s of waiting for RPC \
             response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802702 0x4).",
            "xid 119 at 0000:9b:00 by 3256 nvidia-smi [20802702, 4]",
        ),
        (
            "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
            "xid 79 at 0000:18:00 of 18",
        ),
        (
            "NVRM: GPU at 0000:18:00.0 has fallen off the bus.",
            "xid 79 at 0000:18:00 of 18",
        ),
        (
            "NVRM: The NVIDIA GPU 0000:18:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system \
             has\\x0aNVRM: fallen off the bus and is not responding to commands.",
            "xid 79 at 0000:18:00 of 18",
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
            "sxid 12028 at 0000:05:00 link Some(32) fatal Some(false)",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "sxid 20034 at 0000:a9:00 link Some(30) fatal Some(true)",
        ),
        (
            "[nvidia-nvswitch] SXid (PCI:0000:a9:00.0): 10003, Host_unhandled_interrupt",
            "sxid 10003 at 0000:a9:00 link None fatal None",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Severity 5 Engine instance 30 Sub-engine instance 00",
            "nothing",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002, 0x10100030}",
            "nothing",
        ),
        ("NVRM: Xid (PCI:0000:18:00): 7x9, odd", "nothing"),
        ("NVRM: Xid (PCI:zz:18:00): 79, odd", "nothing"),
        (
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
            "nothing",
        ),
    ] {
        assert_eq!(scan_line(line), expected, "{line}");
    }
}

#[test]
fn lines_about_the_host_are_read() {
    for (line, expected) in [
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,\
             task_memcg=/x,task=python,pid=7,uid=0",
            "oom_global kills 1",
        ),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task=python,pid=7,uid=0",
            "nothing",
        ),
        (
            "Kernel panic - not syncing: Fatal exception",
            "kernel_panic panic 1",
        ),
        (
            "BUG: unable to handle page fault for address: ffffa0",
            "kernel_panic oops 1",
        ),
        ("divide error: 0000 [#1] SMP", "kernel_panic oops 1"),
        (
            "INFO: task python:1234 blocked for more than 120 seconds.",
            "hung_task tasks 1",
        ),
        (
            "INFO: task nvidia-smi:1234 blocked for more than 120 seconds.",
            "hung_task runtime_or_driver 1",
        ),
        (
            "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1]",
            "soft_lockup lockups 1",
        ),
        (
            "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
            "fs_readonly readonly 1",
        ),
        (
            "XFS (sda1): Filesystem has been shut down due to log error",
            "nothing",
        ),
        (
            "XFS (sda1): Shutting down filesystem.",
            "fs_readonly readonly 1",
        ),
        (
            "nvme nvme1: I/O 12 QID 3 timeout, reset controller",
            "nvme timeouts 1",
        ),
        (
            "nvme nvme1: Disabling device after reset failure: -19",
            "nvme disabled 1",
        ),
        (
            "block nvme0n1: no available path - failing I/O",
            "nvme disabled 1",
        ),
        (
            "Buffer I/O error on dev sda1, logical block 7, async page read",
            "block_io_error errors 1",
        ),
        (
            "I/O error, dev sdb, sector 12345 op 0x0:(READ)",
            "block_io_error errors 1",
        ),
        (
            "EXT4-fs (sda1): I/O error while writing superblock",
            "block_io_error superblock 1",
        ),
        (
            "md/raid1:md0: Disk failure on sdb1 detected, failing array",
            "raid failures 1",
        ),
        (
            "nfs: server store1 not responding, still trying",
            "nfs_hang unanswered 1",
        ),
        ("nfs: server store1 OK", "nfs_hang unanswered 0"),
        (
            "mlx5_core 0000:3b:00.0: health compromised - reached miss count",
            "mlx5_fatal fatal 1 at 0000:3b:00",
        ),
        (
            "mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:808:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed",
            "nothing",
        ),
        (
            "mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, High Temperature",
            "mlx5_fatal warnings 1 at 0000:3b:00",
        ),
        (
            "{1}[Hardware Error]: event severity: fatal",
            "mce_uncorrected errors_increase 1",
        ),
        (
            "{2}[Hardware Error]: event severity: recoverable",
            "mce_uncorrected recoverable 1",
        ),
        ("{2}[Hardware Error]: event severity: corrected", "nothing"),
        (
            "pcieport 0000:17:01.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0",
            "pcie_fatal fatal_increase 1 at 0000:17:01",
        ),
        (
            "pcieport 0000:17:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:18:00.0",
            "pcie_fatal nonfatal_increase 1 at 0000:18:00",
        ),
        (
            "python[77]: segfault at 0 ip 00007f00 sp 00007f01 error 4 in libnccl.so.2.19.3[7f00+a000]",
            "nccl_segv faults 1",
        ),
        (
            "python[77]: segfault at 0 ip 00007f00 sp 00007f01 error 4 in libtorch.so[7f00+a000]",
            "nothing",
        ),
        (
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
            "peermem contexts 1",
        ),
        ("Linux version 6.8.0", "nothing"),
    ] {
        assert_eq!(scan_line(line), expected, "{line}");
    }
}

#[test]
fn a_gpu_that_fell_off_in_several_records_is_one_xid_79() {
    let mut scanner = scanner(TrustedWriters::Kernel);
    let lines = [
        "NVRM: The NVIDIA GPU 0000:18:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: fallen off the bus and is not responding to commands.",
    ];
    let mut events = Vec::new();
    for (sequence, line) in lines.iter().enumerate() {
        let raw = format!("3,{sequence},1,-,caller=T7;{line}");
        events.extend(scanner.read(BOOT, &raw).expect("a record").event);
    }
    let texts: Vec<String> = events.iter().map(describe).collect();
    assert_eq!(texts, ["xid 79 at 0000:18:00 of 18"]);
}

#[test]
fn a_line_of_user_space_counts_in_tests_only() {
    let raw = "12,1,1,-;NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.";
    let mut production = scanner(TrustedWriters::Kernel);
    assert_eq!(production.read(BOOT, raw).expect("a record").event, None);
    assert_eq!(production.forged(), 1);
    let mut test = scanner(TrustedWriters::Tests);
    assert!(test.read(BOOT, raw).expect("a record").event.is_some());
    assert_eq!(test.forged(), 0);
    // Records with a daemon's facility count nowhere.
    let by_daemon = raw.replacen("12,1", "30,2", 1);
    assert_eq!(test.read(BOOT, &by_daemon).expect("a record").event, None);
}

#[test]
fn a_process_that_is_named_like_an_error_makes_none() {
    for line in [
        "python: NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.",
        "traps: Kernel panic[7] general protection fault ip:7f sp:7f",
        "audit: nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal",
    ] {
        assert_eq!(scan_line(line), "nothing", "{line}");
    }
    let named = "NVRM: Xid (PCI:0000:18:00): 31, pid=9, name=Link 3 fatal, Ch 00000008";
    assert_eq!(
        scan_line(named),
        "xid 31 at 0000:18:00 of 18 by 9 Link 3 fatal"
    );
}

#[test]
fn a_restarted_reader_reads_nothing_twice_and_knows_what_it_lost() {
    let mut scanner = scanner(TrustedWriters::Kernel);
    let mut read = |boot: &str, sequence: u64| {
        let raw = format!("3,{sequence},1,-;NVRM: Xid (PCI:0000:18:00): 48");
        let scanned = scanner.read(boot, &raw).expect("a record");
        (scanned.event.is_some(), scanned.lost)
    };
    // The first record ever loses nothing: there was no reader before.
    assert_eq!(read(BOOT, 500), (true, 0));
    assert_eq!(read(BOOT, 501), (true, 0));
    // The agent restarts and reads from the start of the ring buffer.
    assert_eq!(read(BOOT, 499), (false, 0));
    assert_eq!(read(BOOT, 501), (false, 0));
    // The ring buffer wrapped: the kernel returns EPIPE and continues further ahead.
    assert_eq!(read(BOOT, 610), (true, 108));
    // Another boot counts from the beginning.
    assert_eq!(read("other", 3), (true, 3));
    assert_eq!(read("other", 4), (true, 0));
}

#[test]
fn malformed_kernel_records_are_refused() {
    for raw in ["", "3,1;x", "a,1,2,-;x", "NVRM: Xid (PCI:0000:18:00): 79"] {
        assert!(Record::parse(raw).is_err(), "{raw}");
    }
    let record = Record::parse("30,7,12,-;a\\x0ab \\xzz").expect("a record");
    assert_eq!((record.facility, record.level, record.sequence), (3, 6, 7));
    assert_eq!(record.text, "a\nb \\xzz");
}

#[test]
fn the_driver_reports_the_bus_map_which_outlives_the_gpu() {
    let mut scanner = Scanner::new(TrustedWriters::Kernel, Cursor::default(), BusMap::default());
    let uuid = "GPU-01234567-89ab-cdef-0011-223344556677";
    let known = format!("6,1,1,-;NVRM: GPU at PCI:0000:18:00: {uuid}");
    assert_eq!(scanner.read(BOOT, &known).expect("a record").event, None);
    let raw = "3,2,1,-;NVRM: Xid (PCI:0000:18:00): 79";
    let Some(Event::Xid { gpu, .. }) = scanner.read(BOOT, raw).expect("a record").event else {
        panic!("an XID");
    };
    assert_eq!(gpu.map(|gpu| gpu.to_string()).as_deref(), Some(uuid));
}

#[test]
fn the_maximum_sequence_can_be_read() {
    let mut scanner = Scanner::new(TrustedWriters::Kernel, Cursor::default(), BusMap::default());
    let last = format!("3,{},1000,-;nothing", u64::MAX);
    assert_eq!(scanner.read(BOOT, &last), Ok(Scanned::default()));
    assert_eq!(
        scanner.read(BOOT, "3,1,1000,-;nothing"),
        Ok(Scanned::default())
    );
}

#[test]
fn lines_of_two_boots_are_not_combined_into_one_event() {
    let mut scanner = scanner(TrustedWriters::Kernel);
    let first = "3,900,1000,-;NVRM: The NVIDIA GPU 0000:18:00.0";
    let last = "3,1,1000,-;NVRM: fallen off the bus and is not responding to commands.";
    assert_eq!(scanner.read(BOOT, first), Ok(Scanned::default()));
    let second = scanner.read("another", last).expect("a record");
    assert_eq!((second.event, second.lost), (None, 1));
}
