//! Parsing of XIDs and SXids in the lines of NVIDIA's drivers.

use muster_model::ids::GpuUuid;
use muster_model::named_enum;

use crate::kernel_log::bus::BusId;

/// Maximum number of registers in a line.
const WORDS_MAX: usize = 8;

named_enum! {
    /// The driver's suggestion for restoring a GPU (XID 154).
    Recovery {
        /// Nothing is needed.
        None = "None",
        /// A reset of the GPU.
        Reset = "GPU Reset Required",
        /// A reboot.
        Reboot = "Node Reboot Required",
        /// Work with GPU-to-GPU traffic must leave.
        DrainPeers = "Drain P2P",
        /// All work must leave, then a reset.
        DrainAndReset = "Drain and Reset",
    }
}

impl Recovery {
    /// Number of the action in NVML's field 230.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::None => 0,
            Self::Reset => 1,
            Self::Reboot => 2,
            Self::DrainPeers => 3,
            Self::DrainAndReset => 4,
        }
    }
}

/// Process named by an XID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Process name, if the line has one.
    pub name: Option<String>,
}

/// Location of an XID 13 on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLocation {
    /// Graphics processing cluster.
    pub gpc: u16,
    /// Texture processing cluster in it.
    pub tpc: u16,
    /// Multiprocessor in it.
    pub sm: u16,
}

/// An error of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xid {
    /// Number of the code.
    pub code: u32,
    /// The process.
    pub process: Option<Process>,
    /// Location on the GPU.
    pub place: Option<SmLocation>,
    /// Number of the link.
    pub link: Option<u32>,
    /// Severity in the line: fatal or not; `None` if it says neither.
    pub is_fatal: Option<bool>,
    /// Registers in brackets.
    pub words: Vec<u32>,
    /// Suggested recovery.
    pub recovery: Option<Recovery>,
}

/// An error of an NVSwitch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sxid {
    /// Number of the code.
    pub code: u32,
    /// Number of the port.
    pub link: Option<u32>,
    /// Severity in the line: fatal or not.
    pub is_fatal: Option<bool>,
}

/// Content of a line of the GPU driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// An XID of the GPU at an address.
    Xid(BusId, Xid),
    /// An SXid of the switch at an address.
    Sxid(BusId, Sxid),
    /// The UUID of the GPU at an address.
    Identity(BusId, GpuUuid),
    /// The first of three lines that report this GPU as gone.
    Names(BusId),
    /// The last of them.
    FallenOff,
}

/// Parses a line of NVIDIA's drivers.
pub(super) fn parse(line: &str) -> Option<Line> {
    let line = line.trim();
    if let Some(message) = line.strip_prefix("NVRM: ") {
        return parse_driver(message.trim_start());
    }
    let switch = ["nvidia-nvswitch", "[nvidia-nvswitch"];
    if switch.iter().any(|start| line.starts_with(start)) {
        let (_, message) = line.split_once("SXid (")?;
        return parse_sxid(message);
    }
    None
}

fn parse_driver(message: &str) -> Option<Line> {
    if let Some(rest) = message.strip_prefix("Xid (") {
        let (bus, rest) = rest.split_once("):")?;
        return Some(Line::Xid(BusId::parse(bus)?, parse_xid(rest.trim())?));
    }
    if message.starts_with("fallen off the bus and is not responding") {
        return Some(Line::FallenOff);
    }
    let gone = || Xid {
        code: 79,
        ..Xid::default()
    };
    if let Some(rest) = message.strip_prefix("The NVIDIA GPU ") {
        let bus = BusId::parse(rest.split_whitespace().next()?)?;
        // Some kernels emit the lines as one.
        return Some(if rest.contains("fallen off the bus") {
            Line::Xid(bus, gone())
        } else {
            Line::Names(bus)
        });
    }
    let of_gpu = message.strip_prefix("GPU ")?;
    let (place, text) = of_gpu
        .strip_prefix("at ")
        .unwrap_or(of_gpu)
        .split_once(' ')?;
    let bus = BusId::parse(place.trim_end_matches(':'))?;
    let event = text.trim_start_matches("GPU ").trim();
    if event.starts_with("has fallen off the bus") {
        return Some(Line::Xid(bus, gone()));
    }
    Some(Line::Identity(bus, event.parse().ok()?))
}

fn parse_xid(text: &str) -> Option<Xid> {
    let digits = text.len()
        - text
            .trim_start_matches(|it: char| it.is_ascii_digit())
            .len();
    let (code, rest) = text.split_at(digits);
    if !(rest.is_empty() || rest.starts_with([',', ' '])) {
        return None;
    }
    let (process, message) = split_process(rest.trim_start_matches([',', ' ']));
    Some(Xid {
        code: code.parse().ok()?,
        process,
        place: find_place(message),
        link: find_link(message),
        is_fatal: find_fatality(message),
        words: find_words(message),
        recovery: find_recovery(message),
    })
}

/// `pid=7, name=python, ` at the beginning, and the remaining text. A process chooses its own name, so
/// nothing else is parsed from it; it ends at the first comma.
fn split_process(text: &str) -> (Option<Process>, &str) {
    let mut rest = text;
    let mut pid = None;
    let mut name = None;
    while let Some((field, after)) = rest.split_once(',').or(Some((rest, ""))) {
        let field = field.trim();
        if let Some(value) = field.strip_prefix("pid=") {
            pid = unquoted(value).parse().ok();
        } else if let Some(value) = field.strip_prefix("name=") {
            let value = unquoted(value);
            name = (value != "<unknown>" && !value.is_empty()).then(|| value.to_owned());
        } else {
            break;
        }
        rest = after.trim_start();
        if rest.is_empty() {
            break;
        }
    }
    (pid.map(|pid| Process { pid, name }), rest)
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['\'', '"'])
}

/// `(GPC 1, TPC 3, SM 0)`.
fn find_place(text: &str) -> Option<SmLocation> {
    let (_, rest) = text.split_once("(GPC ")?;
    let inside = rest.split(')').next()?;
    let mut parts = inside.split(',').map(str::trim);
    let gpc = parts.next()?.parse().ok()?;
    let tpc = parts.next()?.strip_prefix("TPC ")?.parse().ok()?;
    let sm = parts.next()?.strip_prefix("SM ")?.parse().ok()?;
    Some(SmLocation { gpc, tpc, sm })
}

/// `Link 08` or `link 6(0x10000, ...)`.
fn find_link(text: &str) -> Option<u32> {
    let at = text.find("Link ").or_else(|| text.find("link "))?;
    let rest = text[at + 5..].trim_start();
    let end = rest
        .find(|it: char| !it.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn find_fatality(text: &str) -> Option<bool> {
    let lower = text.to_ascii_lowercase();
    if lower.contains("non-fatal") || lower.contains("nonfatal") {
        Some(false)
    } else {
        lower.contains("fatal").then_some(true)
    }
}

/// Numbers in the last brackets, if they are hexadecimal.
fn find_words(text: &str) -> Vec<u32> {
    let from_last = text.rsplit_once("(0x").map_or("", |(_, rest)| rest);
    let inside = from_last.split(')').next().unwrap_or_default();
    let digits = inside.split([',', ' ']).filter(|word| !word.is_empty());
    let words = digits
        .map_while(|word| u32::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok());
    words.take(WORDS_MAX).collect()
}

/// `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`.
fn find_recovery(text: &str) -> Option<Recovery> {
    let (_, new) = text.split_once("ecovery action changed")?;
    let (_, new) = new.rsplit_once(" to ")?;
    let (_, word) = new.split_once('(')?;
    Recovery::of(word.split(')').next()?.trim())
}

fn parse_sxid(message: &str) -> Option<Line> {
    let (bus, rest) = message.split_once("):")?;
    let (code, rest) = rest.trim().split_once(',').unwrap_or((rest.trim(), ""));
    let rest = rest.trim();
    // Lines with registers that follow an error.
    if rest.starts_with("Severity ") || rest.starts_with("Data {") {
        return None;
    }
    let sxid = Sxid {
        code: code.trim().parse().ok()?,
        link: find_link(rest),
        is_fatal: find_fatality(rest),
    };
    Some(Line::Sxid(BusId::parse(bus)?, sxid))
}
