//! Log levels: the filter of the settings, and temporary changes by an admin.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

/// Longest duration of a temporary change, in milliseconds: a day. Permanent changes belong in the
/// settings.
pub const LEVEL_MS_MAX: u64 = 86_400_000;
/// Most modules with a temporary level.
pub const RAISED_MAX: usize = 32;
/// Longest module name in bytes.
const TARGET_BYTES_MAX: usize = 128;
/// Levels, from least to most verbose.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A level for a module, or for everything: `muster_scheduler::leader=debug`, `debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelChange {
    /// The module; empty for everything.
    target: String,
    level: &'static str,
}

/// Error of a rejected change of levels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLevel {
    /// The text cannot be parsed.
    #[error(
        "`{0}` is not `TARGET=LEVEL` or `LEVEL`: a level is one of off, error, warn, info, debug, trace, \
         a target is a module as in the logs, muster_scheduler::leader"
    )]
    Form(String),
    /// The duration is out of range.
    #[error("{given_ms} ms are not between 1 and {LEVEL_MS_MAX} (LEVEL_MS_MAX)")]
    Duration {
        /// Requested duration.
        given_ms: u64,
    },
    /// Too many modules are changed.
    #[error("the levels of {RAISED_MAX} modules are changed already (RAISED_MAX)")]
    TooMany,
    /// The logs of this process cannot be changed.
    #[error("log levels of this process cannot be changed: {0}")]
    Fixed(String),
}

impl FromStr for LevelChange {
    type Err = InvalidLevel;

    fn from_str(text: &str) -> Result<Self, InvalidLevel> {
        let wrong = || InvalidLevel::Form(text.chars().take(TARGET_BYTES_MAX).collect());
        let (target, level) = text.split_once('=').unwrap_or(("", text));
        let is_module = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
        let is_target = target.len() <= TARGET_BYTES_MAX && target.bytes().all(is_module);
        if !is_target || (target.is_empty() && text.contains('=')) {
            return Err(wrong());
        }
        let name = level.to_ascii_lowercase();
        let level = LEVELS
            .into_iter()
            .find(|known| *known == name)
            .ok_or_else(wrong)?;
        Ok(Self {
            target: target.to_owned(),
            level,
        })
    }
}

impl fmt::Display for LevelChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target.as_str() {
            "" => formatter.write_str(self.level),
            target => write!(formatter, "{target}={}", self.level),
        }
    }
}

/// Current log levels.
#[derive(Debug)]
pub(crate) struct Levels {
    /// Filter of the settings.
    base: String,
    /// Temporary level and its expiry, by module.
    raised: BTreeMap<String, (&'static str, Instant)>,
}

impl Levels {
    pub(crate) fn new(base: String) -> Self {
        Self {
            base,
            raised: BTreeMap::new(),
        }
    }

    /// Applies a new filter of the settings; temporary levels stay in effect.
    pub(crate) fn rebase(&mut self, base: String) {
        self.base = base;
    }

    /// Sets a temporary level of a module, replacing an earlier one.
    pub(crate) fn change(
        &mut self,
        change: &LevelChange,
        now: Instant,
        span: Duration,
    ) -> Result<(), InvalidLevel> {
        let given_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        if given_ms == 0 || given_ms > LEVEL_MS_MAX {
            return Err(InvalidLevel::Duration { given_ms });
        }
        let is_new = !self.raised.contains_key(&change.target);
        if is_new && self.raised.len() >= RAISED_MAX {
            return Err(InvalidLevel::TooMany);
        }
        self.raised
            .insert(change.target.clone(), (change.level, now + span));
        Ok(())
    }

    /// Removes expired temporary levels; returns whether there were any.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let before = self.raised.len();
        self.raised.retain(|_, (_, until)| *until > now);
        self.raised.len() != before
    }

    /// Formats the filter. If two entries name the same module, the later one counts.
    pub(crate) fn filter(&self) -> String {
        let mut filter = self.base.clone();
        for (target, (level, _)) in &self.raised {
            let change = LevelChange {
                target: target.clone(),
                level,
            };
            filter = format!("{filter},{change}");
        }
        filter
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn change(text: &str) -> LevelChange {
        text.parse().unwrap()
    }

    #[test]
    fn a_changed_level_expires() {
        let (mut levels, begin) = (Levels::new("info".to_owned()), Instant::now());
        levels
            .change(&change("muster_scheduler::leader=DEBUG"), begin, MINUTE)
            .unwrap();
        levels
            .change(&change("muster_raft_store=trace"), begin, 2 * MINUTE)
            .unwrap();
        assert_eq!(
            levels.filter(),
            "info,muster_raft_store=trace,muster_scheduler::leader=debug"
        );
        assert!(!levels.expire(begin + MINUTE / 2));
        assert!(levels.expire(begin + MINUTE));
        levels.rebase("warn".to_owned());
        assert_eq!(levels.filter(), "warn,muster_raft_store=trace");
        assert!(levels.expire(begin + 2 * MINUTE));
        assert_eq!(levels.filter(), "warn");
    }

    #[test]
    fn the_newest_level_of_a_module_also_decides_when_it_expires() {
        let (mut levels, begin) = (Levels::new("info".to_owned()), Instant::now());
        levels.change(&change("trace"), begin, MINUTE).unwrap();
        levels.change(&change("debug"), begin, 3 * MINUTE).unwrap();
        assert!(!levels.expire(begin + MINUTE));
        assert_eq!(levels.filter(), "info,debug");
    }

    #[test]
    fn malformed_levels_are_rejected() {
        for wrong in [
            "",
            "=debug",
            "loud",
            "a=loud",
            "a b=debug",
            "a=debug,b=debug",
            "a[x]=debug",
        ] {
            assert!(
                matches!(wrong.parse::<LevelChange>(), Err(InvalidLevel::Form(_))),
                "{wrong}"
            );
        }
        let mut levels = Levels::new("info".to_owned());
        let now = Instant::now();
        for span in [Duration::ZERO, Duration::from_millis(LEVEL_MS_MAX + 1)] {
            let refused = levels.change(&change("debug"), now, span);
            assert!(matches!(refused, Err(InvalidLevel::Duration { .. })));
        }
        for module in 0..RAISED_MAX {
            let module = format!("m{module}=debug");
            levels.change(&change(&module), now, MINUTE).unwrap();
        }
        let refused = levels.change(&change("debug"), now, MINUTE);
        assert_eq!(refused, Err(InvalidLevel::TooMany));
    }
}
