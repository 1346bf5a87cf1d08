//! What XIDs of GPUs and SXids of NVSwitches mean: three tables, and how errors of NVLink 5 are read.

use muster_model::health::{Charge, DeviceAction, Scope, Severity};
use muster_model::word_enum;
use serde::{Deserialize, Serialize};

use crate::rules::RuleError;
use crate::rules::condition::read_span;
use crate::rules::text::{Table, Value};

/// The lists of the table, in the order of `Codes`.
const FIELDS: [&str; 3] = ["xids", "sxids", "links"];

word_enum! {
    /// How bad an XID is by itself.
    XidSeverity {
        /// Worth a line.
        Info = "info",
        /// Counted.
        Warn = "warn",
        /// The GPU goes on, and should be reset.
        Degraded = "degraded",
        /// The GPU does not work.
        Fatal = "fatal",
        /// Says more about an XID 48.
        Detail = "detail",
        /// Its registers tell: NVLink 5.
        Decode = "decode",
        /// Its text tells: XID 154.
        Text = "text",
    }
}

word_enum! {
    /// Whose fault an XID usually is.
    Blame {
        /// The program's.
        User = "user",
        /// The program's or the GPU's.
        Ambiguous = "ambiguous",
        /// The GPU's.
        Hardware = "hardware",
        /// A link's or a switch's.
        Fabric = "fabric",
        /// The driver's or the firmware's.
        Driver = "driver",
        /// How the host is set up.
        Config = "config",
        /// Another XID's.
        Consequence = "consequence",
        /// It sums others up.
        Summary = "summary",
        /// Nobody's.
        Nothing = "nothing",
    }
}

word_enum! {
    /// What becomes of tasks on the GPU.
    TaskAction {
        /// Nothing.
        None = "none",
        /// Begun again if it died.
        RestartIfDied = "restart_if_died",
        /// Begun again: it will not get far.
        Restart = "restart",
        /// Ended and begun again elsewhere.
        Kill = "kill",
        /// Ended for good.
        Fail = "fail",
        /// The registers tell.
        Decode = "decode",
        /// The text tells.
        Text = "text",
    }
}

word_enum! {
    /// Of whom repetitions must be before they count.
    Distinct {
        /// Of anybody.
        Any = "any",
        /// Of different jobs.
        Jobs = "jobs",
        /// Of different jobs of different users.
        Users = "users",
    }
}

word_enum! {
    /// How much of a host an SXid reaches.
    SxidReach {
        /// It is counted.
        Count = "count",
        /// It is counted by the minute.
        Replay = "replay",
        /// Nothing is placed while it lasts.
        Heat = "heat",
        /// The tasks on one GPU's link.
        Link = "link",
        /// The gangs that use a port.
        Port = "port",
        /// All of the host.
        Fabric = "fabric",
    }
}

word_enum! {
    /// What an error of NVLink 5 leads to.
    Link5Then {
        /// It is counted.
        Ignore = "ignore",
        /// As XID 74.
        Reset = "reset",
        /// As XID 74, but the other end is looked at first.
        Peer = "peer",
        /// XID 154 says.
        Text = "text",
    }
}

/// When an XID that came again is taken more seriously.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatPolicy {
    /// How many bursts.
    pub count: u32,
    /// Within how many milliseconds.
    pub span_ms: u64,
    /// Of whom.
    pub distinct: Distinct,
    /// What is then done to the GPU, which is blocked.
    pub then: DeviceAction,
}

/// What is done for an XID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidPolicy {
    /// The XID.
    pub code: u32,
    /// Its name in small letters.
    pub name: String,
    /// How bad it is.
    pub severity: XidSeverity,
    /// Whose fault it usually is.
    pub blame: Blame,
    /// What becomes of tasks.
    pub task: TaskAction,
    /// What becomes of the GPU.
    pub device: DeviceAction,
    /// What is blocked; nothing where registers or text tell.
    pub block: Scope,
    /// Who pays the first time.
    pub charge: Charge,
    /// Whether the infrastructure pays from the second time on.
    pub infra_if_repeated: bool,
    /// Whether GPUs since Ampere no longer raise it.
    pub unused: bool,
    /// Whether it belongs to the same burst for three hours.
    pub sticky: bool,
    /// Whether it follows from another XID of the GPU within a minute.
    pub consequence: bool,
    /// Whether only a person ends its block.
    pub by_hand: bool,
    /// When it came again.
    pub repeat: Option<RepeatPolicy>,
}

/// What is done for an SXid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SxidPolicy {
    /// The SXid.
    pub code: u32,
    /// Its name in small letters.
    pub name: String,
    /// How bad it is.
    pub severity: Severity,
    /// How much it reaches.
    pub reach: SxidReach,
    /// What is blocked.
    pub block: Scope,
}

/// One row of how errors of NVLink 5 are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link5 {
    /// 144 to 150.
    pub code: u32,
    /// The unit that reports.
    pub unit: String,
    /// Bits 25 to 20 of the first word.
    pub subcode: u32,
    /// Lowest bits of the first word by drivers before release 575, and how many.
    pub before_575: (u32, u32),
    /// The same since release 575.
    pub since_575: (u32, u32),
    /// The second word, if it counts.
    pub status: Option<u32>,
    /// What follows.
    pub then: Link5Then,
    /// Whether the link is gone.
    pub is_fatal: bool,
}

/// What all codes mean.
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
    /// Reads the table `codes` of a rule file: a list of rows for each kind.
    pub(super) fn read(table: &Table) -> Result<Self, RuleError> {
        let mut lists = [const { None }; FIELDS.len()];
        for entry in &table.entries {
            let wrong = |problem: &str, way_out: String| {
                RuleError::at(entry.line, problem, way_out).of_field(&entry.name)
            };
            let Some(at) = FIELDS.iter().position(|field| *field == entry.name) else {
                let way_out = format!("write one of {}", FIELDS.join(", "));
                return Err(wrong("no table of codes has that name", way_out));
            };
            let Value::Texts(rows) = &entry.value else {
                return Err(wrong("it is no list", "write a list of rows".to_owned()));
            };
            if lists[at].replace((entry.line, rows)).is_some() {
                return Err(wrong("it is there twice", "remove one".to_owned()));
            }
        }
        let list = |at: usize| {
            lists[at].ok_or_else(|| {
                let way_out = "list its rows, or remove `[codes]` for all that ship";
                RuleError::at(table.line, "it is missing", way_out).of_field(FIELDS[at])
            })
        };
        let codes = Self {
            xids: rows(list(0)?, read_xid).map_err(|error| error.of_field(FIELDS[0]))?,
            sxids: rows(list(1)?, read_sxid).map_err(|error| error.of_field(FIELDS[1]))?,
            links: rows(list(2)?, read_link).map_err(|error| error.of_field(FIELDS[2]))?,
        };
        let misplaced = [
            first_misplaced(codes.xids.iter().map(|it| it.code)),
            first_misplaced(codes.sxids.iter().map(|it| it.code)),
        ];
        for (at, code) in misplaced.into_iter().enumerate() {
            if let Some(code) = code {
                let problem = format!("code {code} follows one that is not less");
                let way_out = "sort the rows by their codes, each once";
                return Err(RuleError::at(list(at)?.0, problem, way_out).of_field(FIELDS[at]));
            }
        }
        Ok(codes)
    }

    /// What is done for an XID; none if nobody knows it.
    #[must_use]
    pub fn xid(&self, code: u32) -> Option<&XidPolicy> {
        let at = self.xids.binary_search_by_key(&code, |policy| policy.code);
        self.xids.get(at.ok()?)
    }

    /// What is done for an SXid; none if nobody knows it.
    #[must_use]
    pub fn sxid(&self, code: u32) -> Option<&SxidPolicy> {
        let at = self.sxids.binary_search_by_key(&code, |policy| policy.code);
        self.sxids.get(at.ok()?)
    }

    /// Reads the first two words of an error of NVLink 5. Without the driver's release, both forms are tried, and count if
    /// they say the same.
    #[must_use]
    pub fn link(&self, code: u32, words: (u32, u32), release: Option<u32>) -> Option<&Link5> {
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
    fn matches(&self, code: u32, words: (u32, u32), lowest: (u32, u32)) -> bool {
        let (bits, length) = lowest;
        let mask = (1u32 << length) - 1;
        self.code == code
            && words.0 & mask == bits
            && (words.0 >> 20) & 0x3f == self.subcode
            && self.status.is_none_or(|status| status == words.1)
    }
}

/// The first code that is not greater than the one before.
fn first_misplaced(mut codes: impl Iterator<Item = u32>) -> Option<u32> {
    let mut before = None;
    codes.find(|code| before.replace(*code).is_some_and(|before| *code <= before))
}

/// Rows of a list that begins at a line.
fn rows<T>(
    (line, rows): (usize, &Vec<String>),
    read: fn(&[&str]) -> Option<T>,
) -> Result<Vec<T>, RuleError> {
    rows.iter()
        .map(|row| {
            let words: Vec<&str> = row.split_whitespace().collect();
            let problem = || format!("`{row}` is no row of this table");
            read(&words)
                .ok_or_else(|| RuleError::at(line, problem(), "see the comment before the list"))
        })
        .collect()
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

/// Bits 25 to 20, and the lowest ones with their number.
fn read_bits(text: &str) -> Option<(u32, (u32, u32))> {
    let (subcode, lowest) = text.split_once('/')?;
    let length = u32::try_from(lowest.len()).ok()?;
    let bits = u32::from_str_radix(lowest, 2).ok()?;
    Some((u32::from_str_radix(subcode, 2).ok()?, (bits, length)))
}
