//! Assessment of a single XID or SXid by its code, its registers or its text.

use muster_model::health::{Action, Charge, DeviceAction, Scope, Severity};

use crate::kernel_log::{Recovery, Sxid, Xid};
use crate::rules::{Codes, Link5Then, SxidReach, TaskAction, XidSeverity};

/// NVLink errors of links before NVLink 5; newer ones are judged alike.
const NVLINK: u32 = 74;
/// Bits of the first register of an XID 74 that are meaningless, or a consequence of the other end (NVIDIA's
/// guide).
const MEANINGLESS: u32 = 1 | 1 << 23 | 1 << 30;
const SYMPATHETIC: u32 = 1 << 1 | 1 << 20;
/// Bits that call for checking the seating of boards and cables.
const SEATING: u32 = 1 << 8 | 1 << 9 | 1 << 12 | 1 << 16 | 1 << 17 | 1 << 24 | 1 << 28;
/// Bits that call for checking the signal of the link.
const SIGNAL: u32 = 1 << 21 | 1 << 22;
/// Deciding registers of an XID 74, counted from 0: the first, third, fourth and fifth.
const DECIDING: [usize; 4] = [0, 2, 3, 4];

/// Assessment of a device error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// Severity.
    pub severity: Severity,
    /// Scope of the block.
    pub block: Scope,
    /// Action for tasks on it.
    pub task: TaskAction,
    /// Action for the device.
    pub device: DeviceAction,
    /// Further action while it lasts.
    pub action: Option<Action>,
    /// Budget that is charged.
    pub charge: Charge,
    /// What the assessment is based on, for operators; empty if the code says it all.
    pub reading: String,
}

impl Assessment {
    /// Counted only.
    fn counted(reading: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warn,
            block: Scope::None,
            task: TaskAction::RestartIfDied,
            device: DeviceAction::None,
            action: None,
            charge: Charge::Infra,
            reading: reading.into(),
        }
    }

    /// The GPU does not work until it is reset, or its host is rebooted.
    fn broken(device: DeviceAction, block: Scope, reading: impl Into<String>) -> Self {
        Self {
            severity: Severity::Fatal,
            block,
            task: TaskAction::Kill,
            device,
            ..Self::counted(reading)
        }
    }
}

/// Assesses an XID. The driver release decides how NVLink 5 registers are decoded; an unknown XID is counted.
#[must_use]
pub fn judge_xid(codes: &Codes, xid: &Xid, release: Option<u32>) -> Assessment {
    let Some(policy) = codes.xid(xid.code) else {
        return Assessment::counted("an unknown code");
    };
    let severity = match policy.severity {
        XidSeverity::Decode => return judge_link5(codes, xid, release),
        XidSeverity::Text => return judge_recovery(xid.recovery),
        XidSeverity::Info => Severity::Info,
        XidSeverity::Warn | XidSeverity::Detail => Severity::Warn,
        XidSeverity::Degraded => Severity::Degraded,
        XidSeverity::Fatal => Severity::Fatal,
    };
    let judged = Assessment {
        severity,
        block: policy.block,
        task: policy.task,
        device: policy.device,
        action: None,
        charge: policy.charge,
        reading: String::new(),
    };
    if xid.code == NVLINK {
        judge_link(judged, &xid.words)
    } else {
        judged
    }
}

/// XID 74 by its registers; without them it is judged by its code.
fn judge_link(judged: Assessment, words: &[u32]) -> Assessment {
    let deciding: Vec<u32> = DECIDING
        .iter()
        .filter_map(|at| words.get(*at).copied())
        .collect();
    let [first, others @ ..] = &deciding[..] else {
        return judged;
    };
    let nothing_else = others.iter().all(|word| *word == 0);
    if *first != 0 && nothing_else && first & !MEANINGLESS == 0 {
        return Assessment::counted("meaningless registers");
    }
    if *first != 0 && nothing_else && first & !(MEANINGLESS | SYMPATHETIC) == 0 {
        return Assessment::counted("the other end of the link failed");
    }
    let reading = if first & SEATING != 0 {
        "look at how boards and cables are seated"
    } else if first & SIGNAL != 0 {
        "look at the signal of the link"
    } else {
        ""
    };
    Assessment {
        reading: reading.to_owned(),
        ..judged
    }
}

/// NVLink 5 by its registers; where they do not decide, the line does.
fn judge_link5(codes: &Codes, xid: &Xid, release: Option<u32>) -> Assessment {
    let row = match xid.words[..] {
        [first, second, ..] => codes.link(xid.code, [first, second], release),
        _ => None,
    };
    let broken = |reading: String| Assessment::broken(DeviceAction::Reset, Scope::Gpu, reading);
    match row {
        Some(row) => match row.then {
            Link5Then::Ignore => Assessment::counted(row.unit.as_str()),
            Link5Then::Text => Assessment::counted(format!("{}: decided by XID 154", row.unit)),
            Link5Then::Reset => broken(row.unit.clone()),
            Link5Then::Peer => broken(format!("{}: look at the other end first", row.unit)),
        },
        None if xid.is_fatal == Some(true) => broken("fatal by its line".to_owned()),
        None => Assessment::counted("unknown registers"),
    }
}

/// XID 154 and the driver's recovery action, by what would restore the GPU.
#[must_use]
pub fn judge_recovery(recovery: Option<Recovery>) -> Assessment {
    let Some(recovery) = recovery else {
        return Assessment::counted("no recovery is named");
    };
    let reading = recovery.name();
    match recovery {
        Recovery::None => Assessment {
            severity: Severity::Info,
            ..Assessment::counted(reading)
        },
        Recovery::Reset => Assessment::broken(DeviceAction::Reset, Scope::Gpu, reading),
        Recovery::Reboot => Assessment::broken(DeviceAction::Reboot, Scope::Host, reading),
        Recovery::DrainPeers => Assessment {
            severity: Severity::Degraded,
            action: Some(Action::NoPeerGang),
            ..Assessment::counted(reading)
        },
        Recovery::DrainAndReset => Assessment {
            severity: Severity::Degraded,
            block: Scope::GpuAtTaskEnd,
            device: DeviceAction::ResetIdle,
            ..Assessment::counted(reading)
        },
    }
}

/// Assesses an SXid; an unknown one by the severity in its line.
#[must_use]
pub fn judge_sxid(codes: &Codes, sxid: &Sxid) -> Assessment {
    let broken = |reading| Assessment::broken(DeviceAction::Reboot, Scope::Host, reading);
    match codes.sxid(sxid.code) {
        Some(policy) if policy.severity == Severity::Fatal => broken(policy.name.clone()),
        Some(policy) if policy.reach == SxidReach::Heat => Assessment {
            action: Some(Action::NoNewTask),
            ..Assessment::counted(policy.name.as_str())
        },
        Some(policy) => Assessment::counted(policy.name.as_str()),
        None if sxid.is_fatal == Some(true) => broken("fatal by its line".to_owned()),
        None => Assessment::counted("an unknown code"),
    }
}
