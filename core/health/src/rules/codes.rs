//! Tables of XIDs of GPUs and SXids of NVSwitches, and of NVLink 5 error decoding.

use muster_model::health::{Charge, DeviceAction, Scope, Severity};
use muster_model::named_enum;
use serde::{Deserialize, Serialize};

use crate::rules::RuleError;
use crate::rules::condition::read_span;
use crate::rules::text::{Table, Value};

/// The lists of the table, in the order of `Codes`.
const FIELDS: [&str; 3] = ["xids", "sxids", "links"];

named_enum! {
    /// Severity of a single XID.
    XidSeverity {
        /// Logged only.
        Info = "info",
        /// Counted.
        Warn = "warn",
        /// The GPU continues, and should be reset.
        Degraded = "degraded",
        /// The GPU does not work.
        Fatal = "fatal",
        /// Details of an XID 48.
        Detail = "detail",
        /// Decided by its registers: NVLink 5.
        Decode = "decode",
        /// Decided by its text: XID 154.
        Text = "text",
    }
}

named_enum! {
    /// Usual cause of an XID.
    Blame {
        /// The program.
        User = "user",
        /// The program or the GPU.
        Ambiguous = "ambiguous",
        /// The GPU.
        Hardware = "hardware",
        /// A link or a switch.
        Fabric = "fabric",
        /// The driver or the firmware.
        Driver = "driver",
        /// The configuration of the host.
        Config = "config",
        /// Another XID.
        Consequence = "consequence",
        /// It summarizes others.
        Summary = "summary",
        /// No fault.
        Nothing = "nothing",
    }
}

named_enum! {
    /// Action for tasks on the GPU.
    TaskAction {
        /// None.
        None = "none",
        /// Restart if it died.
        RestartIfDied = "restart_if_died",
        /// Restart: it will not get far.
        Restart = "restart",
        /// Kill and restart elsewhere.
        Kill = "kill",
        /// Fails permanently; not retried.
        Fail = "fail",
        /// Decided by its registers.
        Decode = "decode",
        /// Decided by its text.
        Text = "text",
    }
}

named_enum! {
    /// Required diversity of repetitions.
    Distinct {
        /// Any jobs.
        Any = "any",
        /// Different jobs.
        Jobs = "jobs",
        /// Different jobs of different users.
        Users = "users",
    }
}

named_enum! {
    /// Reach of an SXid on its host.
    SxidReach {
        /// Counted only.
        Count = "count",
        /// Counted by the minute.
        Replay = "replay",
        /// No placement while it lasts.
        Heat = "heat",
        /// The tasks on one GPU's link.
        Link = "link",
        /// The gangs that use a port.
        Port = "port",
        /// The whole host.
        Fabric = "fabric",
    }
}

named_enum! {
    /// Consequence of an NVLink 5 error.
    Link5Then {
        /// Counted only.
        Ignore = "ignore",
        /// Same as XID 74.
        Reset = "reset",
        /// Same as XID 74, but the other end is checked first.
        Peer = "peer",
        /// Decided by XID 154.
        Text = "text",
    }
}

/// Escalation of a repeated XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatPolicy {
    /// Number of bursts.
    pub count: u32,
    /// Span in milliseconds.
    pub span_ms: u64,
    /// Required diversity of the bursts.
    pub distinct: Distinct,
    /// Action for the GPU, which is blocked.
    pub then: DeviceAction,
}

/// Policy for an XID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidPolicy {
    /// The XID.
    pub code: u32,
    /// Its name in lowercase.
    pub name: String,
    /// Severity.
    pub severity: XidSeverity,
    /// Usual cause.
    pub blame: Blame,
    /// Action for tasks.
    pub task: TaskAction,
    /// Action for the GPU.
    pub device: DeviceAction,
    /// Scope of the block; none where registers or text decide.
    pub block: Scope,
    /// Budget charged the first time.
    pub charge: Charge,
    /// Whether the infrastructure is charged from the second time on.
    pub infra_if_repeated: bool,
    /// Whether GPUs since Ampere no longer raise it.
    pub unused: bool,
    /// Whether it belongs to the same burst for three hours.
    pub sticky: bool,
    /// Whether it follows from another XID of the GPU within a minute.
    pub consequence: bool,
    /// Whether only an operator can end its block.
    pub by_hand: bool,
    /// Escalation when it is repeated.
    pub repeat: Option<RepeatPolicy>,
}

/// Policy for an SXid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SxidPolicy {
    /// The SXid.
    pub code: u32,
    /// Its name in lowercase.
    pub name: String,
    /// Severity.
    pub severity: Severity,
    /// Reach on the host.
    pub reach: SxidReach,
    /// Scope of the block.
    pub block: Scope,
}

/// One row of the NVLink 5 decoding table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link5 {
    /// 144 to 150.
    pub code: u32,
    /// The reporting unit.
    pub unit: String,
    /// Bits 25 to 20 of the first word.
    pub subcode: u32,
    /// Lowest bits of the first word with drivers before release 575.
    pub before_575: LowestBits,
    /// The same since release 575.
    pub since_575: LowestBits,
    /// The second word, if it matters.
    pub status: Option<u32>,
    /// The consequence.
    pub then: Link5Then,
    /// Whether the link is gone.
    pub is_fatal: bool,
}

/// Value of the lowest bits of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LowestBits {
    /// The value.
    pub bits: u32,
    /// Number of the bits.
    pub length: u32,
}

impl LowestBits {
    const fn are_in(self, word: u32) -> bool {
        word & ((1u32 << self.length) - 1) == self.bits
    }
}

/// All tables of codes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Codes {
    /// XIDs in ascending order.
    pub xids: Vec<XidPolicy>,
    /// SXids in ascending order.
    pub sxids: Vec<SxidPolicy>,
    /// Errors of NVLink 5.
    pub links: Vec<Link5>,
}

impl Codes {
    /// Parses the table `codes` of a rule file: a list of rows for each kind.
    pub(super) fn read(table: &Table) -> Result<Self, RuleError> {
        let mut lists: [Option<List<'_>>; FIELDS.len()] = [None; FIELDS.len()];
        for entry in &table.entries {
            let wrong = |problem: &str, remedy: String| {
                RuleError::at(entry.line, problem, remedy).of_field(&entry.name)
            };
            let Some(at) = FIELDS.iter().position(|field| *field == entry.name) else {
                let remedy = format!("write one of {}", FIELDS.join(", "));
                return Err(wrong("no table of codes has that name", remedy));
            };
            let Value::Texts(rows) = &entry.value else {
                return Err(wrong("not a list", "write a list of rows".to_owned()));
            };
            let list = List {
                field: FIELDS[at],
                line: entry.line,
                rows,
            };
            if lists[at].replace(list).is_some() {
                return Err(wrong("duplicate entry", "remove one".to_owned()));
            }
        }
        let list = |at: usize| {
            lists[at].ok_or_else(|| {
                let remedy = "list its rows, or remove `[codes]` for all that ship";
                RuleError::at(table.line, "it is missing", remedy).of_field(FIELDS[at])
            })
        };
        let codes = Self {
            xids: list(0)?.read(read_xid)?,
            sxids: list(1)?.read(read_sxid)?,
            links: list(2)?.read(read_link)?,
        };
        let misplaced = [
            first_misplaced(codes.xids.iter().map(|it| it.code)),
            first_misplaced(codes.sxids.iter().map(|it| it.code)),
        ];
        for (at, code) in misplaced.into_iter().enumerate() {
            if let Some(code) = code {
                let problem = format!("code {code} follows one that is not less");
                let remedy = "sort the rows by their codes, each once";
                return Err(RuleError::at(list(at)?.line, problem, remedy).of_field(FIELDS[at]));
            }
        }
        Ok(codes)
    }

    /// Policy for an XID; `None` if unknown.
    #[must_use]
    pub fn xid(&self, code: u32) -> Option<&XidPolicy> {
        let at = self.xids.binary_search_by_key(&code, |policy| policy.code);
        self.xids.get(at.ok()?)
    }

    /// Policy for an SXid; `None` if unknown.
    #[must_use]
    pub fn sxid(&self, code: u32) -> Option<&SxidPolicy> {
        let at = self.sxids.binary_search_by_key(&code, |policy| policy.code);
        self.sxids.get(at.ok()?)
    }

    /// Decodes the first two words of an NVLink 5 error. Without the driver's release, both forms are tried,
    /// and used if they agree.
    #[must_use]
    pub fn link(&self, code: u32, words: [u32; 2], release: Option<u32>) -> Option<&Link5> {
        let since = |it: &&Link5| it.matches(code, words, it.since_575);
        let before = |it: &&Link5| it.matches(code, words, it.before_575);
        match release {
            Some(575..) => self.links.iter().find(since),
            Some(_) => self.links.iter().find(before),
            None => {
                let newer = self.links.iter().find(since);
                let older = self.links.iter().find(before);
                match (newer, older) {
                    (Some(newer), Some(older)) if newer.then != older.then => None,
                    (newer, older) => newer.or(older),
                }
            }
        }
    }
}

impl Link5 {
    fn matches(&self, code: u32, [first, second]: [u32; 2], lowest: LowestBits) -> bool {
        self.code == code
            && lowest.are_in(first)
            && (first >> 20) & 0x3f == self.subcode
            && self.status.is_none_or(|status| status == second)
    }
}

/// The first code that is not greater than its predecessor.
fn first_misplaced(codes: impl Iterator<Item = u32>) -> Option<u32> {
    let mut before = None;
    for code in codes {
        if before.is_some_and(|before| code <= before) {
            return Some(code);
        }
        before = Some(code);
    }
    None
}

/// A list of rows in a rule file.
#[derive(Clone, Copy)]
struct List<'a> {
    field: &'static str,
    /// The line at which it starts.
    line: usize,
    rows: &'a [String],
}

impl List<'_> {
    /// Reads each row by its words.
    fn read<T>(self, read_row: fn(&[&str]) -> Option<T>) -> Result<Vec<T>, RuleError> {
        let read = |row: &String| {
            let words: Vec<&str> = row.split_whitespace().collect();
            read_row(&words).ok_or_else(|| {
                let problem = format!("`{row}` is not a row of this table");
                RuleError::at(self.line, problem, "see the comment before the list")
                    .of_field(self.field)
            })
        };
        self.rows.iter().map(read).collect()
    }
}

fn read_xid(words: &[&str]) -> Option<XidPolicy> {
    let [
        code,
        severity,
        blame,
        task,
        device,
        block,
        charge,
        flags,
        repeat,
        name,
    ] = words
    else {
        return None;
    };
    let infra_if_repeated = *charge == "infra_if_repeat";
    Some(XidPolicy {
        code: code.parse().ok()?,
        name: (*name).to_owned(),
        severity: XidSeverity::of(severity)?,
        blame: Blame::of(blame)?,
        task: TaskAction::of(task)?,
        device: DeviceAction::of(device)?,
        block: match *block {
            "decode" | "text" => Scope::None,
            word => Scope::of(word)?,
        },
        charge: if infra_if_repeated {
            Charge::User
        } else {
            Charge::of(charge)?
        },
        infra_if_repeated,
        unused: flags.contains('u'),
        sticky: flags.contains('s'),
        consequence: flags.contains('c'),
        by_hand: flags.contains('m'),
        repeat: match *repeat {
            "-" => None,
            text => Some(read_repeat(text)?),
        },
    })
}

fn read_repeat(text: &str) -> Option<RepeatPolicy> {
    let parts: Vec<&str> = text.split('/').collect();
    let [count, span, distinct, then] = parts[..] else {
        return None;
    };
    Some(RepeatPolicy {
        count: count.parse().ok()?,
        span_ms: read_span(span)?,
        distinct: Distinct::of(distinct)?,
        then: DeviceAction::of(then)?,
    })
}

fn read_sxid(words: &[&str]) -> Option<SxidPolicy> {
    let [code, severity, reach, block, name] = words else {
        return None;
    };
    Some(SxidPolicy {
        code: code.parse().ok()?,
        name: (*name).to_owned(),
        severity: Severity::of(severity)?,
        reach: SxidReach::of(reach)?,
        block: Scope::of(block)?,
    })
}

fn read_link(words: &[&str]) -> Option<Link5> {
    let [code, unit, before, since, status, then, severity, _] = words else {
        return None;
    };
    let (subcode, before_575) = read_bits(before)?;
    let (subcode_since, since_575) = read_bits(since)?;
    (subcode == subcode_since).then_some(())?;
    Some(Link5 {
        code: code.parse().ok()?,
        unit: (*unit).to_owned(),
        subcode,
        before_575,
        since_575,
        status: match status.strip_prefix("0x") {
            Some(digits) => Some(u32::from_str_radix(digits, 16).ok()?),
            None => None,
        },
        then: Link5Then::of(then)?,
        is_fatal: severity.ends_with("fatal") && *severity != "nonfatal",
    })
}

/// Bits 25 to 20, and the lowest ones.
fn read_bits(text: &str) -> Option<(u32, LowestBits)> {
    let (subcode, lowest) = text.split_once('/')?;
    let lowest = LowestBits {
        bits: u32::from_str_radix(lowest, 2).ok()?,
        length: u32::try_from(lowest.len()).ok()?,
    };
    Some((u32::from_str_radix(subcode, 2).ok()?, lowest))
}
