//! Site checks: scripts with Nagios exit codes, and node health checks as used with Slurm.

use muster_model::health::{Severity, raw_evidence};

/// Prefix of the rule name in a finding of a site's own check, followed by the check's name.
pub const RULE_PREFIX: &str = "check:";

/// Result convention of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// 0 is healthy, 1 a warning, 2 critical, anything else unknown; one line, with performance data after
    /// `|`.
    Nagios,
    /// 0 is healthy, anything else is not; a line gives the reason, as with LBNL's node health check and
    /// Slurm's `HealthCheckProgram`.
    NodeHealthCheck,
}

/// End of a check's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckEnd {
    /// Exited with this code.
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
    /// Timed out.
    TimedOut,
    /// Could not be started.
    NotStarted,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// Severity; `None` if unknown, which never counts as healthy.
    pub severity: Option<Severity>,
    /// Its line, without performance data.
    pub text: String,
    /// Performance data: name and value as written.
    pub figures: Vec<(String, String)>,
}

/// Maximum number of performance data values per check.
const FIGURES_MAX: usize = 32;

/// Interprets the output and the end of a check.
#[must_use]
pub fn read(dialect: Dialect, end: CheckEnd, output: &str) -> CheckResult {
    let severity = match (end, dialect) {
        (CheckEnd::Exited(0), _) => Some(Severity::Healthy),
        (CheckEnd::Exited(1), Dialect::Nagios) => Some(Severity::Degraded),
        (CheckEnd::Exited(2), Dialect::Nagios) => Some(Severity::Fatal),
        (CheckEnd::Exited(_) | CheckEnd::Killed(_), Dialect::Nagios) => None,
        (CheckEnd::Exited(_), Dialect::NodeHealthCheck) => Some(Severity::Fatal),
        (CheckEnd::Killed(_), Dialect::NodeHealthCheck) => None,
        // A check that hangs has found something that hangs.
        (CheckEnd::TimedOut, _) => Some(Severity::Fatal),
        (CheckEnd::NotStarted, _) => None,
    };
    let first_line = match dialect {
        Dialect::Nagios => output.lines().next(),
        Dialect::NodeHealthCheck => {
            let error = output.lines().find(|line| line.starts_with("ERROR"));
            error.or_else(|| output.lines().next())
        }
    };
    let line = first_line.unwrap_or_default();
    let (text, figures) = match dialect {
        Dialect::Nagios => line.split_once('|').unwrap_or((line, "")),
        Dialect::NodeHealthCheck => (line, ""),
    };
    let evidence = raw_evidence(text.trim());
    let text = match end {
        CheckEnd::TimedOut => format!("it did not end in time {evidence}"),
        CheckEnd::NotStarted => format!("it could not be started {evidence}"),
        CheckEnd::Killed(signal) => format!("signal {signal} ended it {evidence}"),
        CheckEnd::Exited(_) => evidence,
    };
    let figure = |word: &str| {
        let (name, value) = word.split_once('=')?;
        let value = value.split(';').next()?;
        Some((name.trim_matches('\'').to_owned(), value.to_owned()))
    };
    let figures = figures.split_whitespace().filter_map(figure);
    CheckResult {
        severity,
        text: text.trim_end().to_owned(),
        figures: figures.take(FIGURES_MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(dialect: Dialect, end: CheckEnd, output: &str) -> String {
        let CheckResult {
            severity,
            text,
            figures,
        } = read(dialect, end, output);
        let severity = severity.map_or("unknown", Severity::name);
        let figures: Vec<String> = figures
            .iter()
            .map(|(name, value)| format!(" {name}={value}"))
            .collect();
        format!("{severity}: {text}{}", figures.concat())
    }

    #[test]
    fn nagios_codes_are_understood_and_unknown_is_not_healthy() {
        let nagios = |end, output| summary(Dialect::Nagios, end, output);
        let disk = "DISK WARNING - 5% free|/=95%;90;98 'inodes'=7\nmore";
        assert_eq!(nagios(CheckEnd::Exited(0), "OK"), "healthy: OK");
        assert_eq!(
            nagios(CheckEnd::Exited(1), disk),
            "degraded: DISK WARNING - 5% free /=95% inodes=7"
        );
        assert_eq!(nagios(CheckEnd::Exited(2), "CRITICAL"), "fatal: CRITICAL");
        assert_eq!(nagios(CheckEnd::Exited(3), "?"), "unknown: ?");
        assert_eq!(nagios(CheckEnd::Exited(127), ""), "unknown: ");
        assert_eq!(
            nagios(CheckEnd::Killed(11), ""),
            "unknown: signal 11 ended it"
        );
        assert_eq!(
            nagios(CheckEnd::TimedOut, ""),
            "fatal: it did not end in time"
        );
        assert_eq!(
            nagios(CheckEnd::NotStarted, ""),
            "unknown: it could not be started"
        );
    }

    #[test]
    fn a_node_health_check_reports_its_error_on_any_line() {
        let output = "nhc: running\nERROR:  nhc:  Health check failed:  check_fs_mount:  /data not mounted\n";
        assert_eq!(
            summary(Dialect::NodeHealthCheck, CheckEnd::Exited(1), output),
            "fatal: ERROR:  nhc:  Health check failed:  check_fs_mount:  /data not mounted"
        );
        assert_eq!(
            summary(Dialect::NodeHealthCheck, CheckEnd::Exited(0), ""),
            "healthy: "
        );
    }
}
