//! Errors for the user: the failure, its cause, and advice.

use muster_client::{ClientError, Refusal, TlsMismatch};
use muster_proto::status::ADMINS_BY_SETTINGS;

use crate::exit::Exit;
use crate::output::{Tone, note, paint};

/// The client's name for reading a task's output.
const READING_OUTPUT: &str = "read the task's output";

/// The client's name for running a command beside a task.
const RUNNING_COMMAND: &str = "run a command beside the task";

/// Reason why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Failure and cause; one line each.
    lines: Vec<String>,
    /// Advice.
    help: Option<String>,
    /// The cluster's refusal, if it is one.
    refusal: Option<Box<Refusal>>,
    exit: Exit,
}

impl Failure {
    /// A failure with its cause.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            lines: vec![message.into()],
            help: None,
            refusal: None,
            exit: Exit::Error,
        }
    }

    /// Invalid input of the user.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(message).exiting(Exit::Usage)
    }

    /// Several errors at once.
    pub(crate) fn list(lines: Vec<String>) -> Self {
        Self {
            lines,
            help: None,
            refusal: None,
            exit: Exit::Error,
        }
    }

    /// An internal error.
    pub(crate) fn internal(error: &dyn std::error::Error) -> Self {
        Self::new(format!("internal error: {error}")).help("please report this as a bug")
    }

    /// The reader of our output has gone: there is no one to report to.
    pub(crate) fn reader_gone() -> Self {
        Self {
            lines: Vec::new(),
            help: None,
            refusal: None,
            exit: Exit::Ok,
        }
    }

    /// Whether the only failure is that our output is no longer read.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.lines.is_empty()
    }

    /// A failed submission. If its outcome is unknown, the advice is how to repeat it without a second
    /// submission.
    pub(crate) fn of_submission(error: ClientError, request_id: &str) -> Self {
        let is_unknown = matches!(error, ClientError::DeadlineExceeded { .. });
        let mut failure = Self::from(error);
        if is_unknown {
            let repeat = format!(
                "it may have been accepted: repeat the command with --request-id {request_id} within 24 \
                 hours to avoid a second submission"
            );
            let help = failure.help.take();
            failure.help = Some(help.map_or(repeat.clone(), |help| format!("{repeat}; {help}")));
        }
        failure
    }

    /// Prefixes each line with its subject.
    #[must_use]
    pub(crate) fn about(mut self, subject: &str) -> Self {
        for line in &mut self.lines {
            *line = format!("{subject}: {line}");
        }
        self
    }

    /// Adds advice.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the exit code.
    #[must_use]
    pub(crate) fn exiting(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Failure and cause, in one line.
    pub(crate) fn text(&self) -> String {
        self.lines.join("; ")
    }

    /// The cluster's refusal, if it is one.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_deref()
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Prints it to stderr.
    pub(crate) fn print(&self) {
        for line in &self.lines {
            note(&format!("{} {line}", paint("error:", Tone::Bad)));
        }
        if let Some(help) = &self.help {
            note(&format!(" {} {help}", paint("help:", Tone::Good)));
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let help = help(&error);
        let lines = match error.refusal() {
            Some(refusal) if !refusal.violations.is_empty() => violations(refusal),
            Some(refusal) if is_cut_off(&error, refusal) => vec![format!(
                "cannot {RUNNING_COMMAND}: its replica is gone, which ends the command ({refusal})"
            )],
            _ => vec![error.to_string()],
        };
        let mut failure = Self::list(lines);
        // Variables and flags for the cluster are part of the command line.
        if matches!(error, ClientError::Config { .. }) {
            failure.exit = Exit::Usage;
        }
        failure.refusal = error.refusal().cloned().map(Box::new);
        match help {
            Some(help) => failure.help(help),
            None => failure,
        }
    }
}

/// Whether the connection to a command beside a task broke: then the reason is a code of the transport, not
/// of the cluster.
fn is_cut_off(error: &ClientError, refusal: &Refusal) -> bool {
    let is_command =
        matches!(error, ClientError::Refused { operation, .. } if *operation == RUNNING_COMMAND);
    let of_transport = ["Cancelled", "Internal", "Unavailable", "Unknown"];
    is_command && of_transport.contains(&refusal.reason.as_str())
}

fn violations(refusal: &Refusal) -> Vec<String> {
    let violations = refusal.violations.iter();
    violations.map(ToString::to_string).collect()
}

/// Advice for an error, if known.
fn help(error: &ClientError) -> Option<String> {
    if let Some(mismatch) = error.tls_mismatch() {
        return Some(tls_mismatch_help(mismatch).to_owned());
    }
    let text = match error {
        ClientError::Unreachable { .. } => {
            "is the cluster running? `muster dev` starts one here; give the replicas of another one with \
             --address host:port[,host:port...] or MUSTER_ADDR"
        }
        ClientError::DeadlineExceeded { .. } => {
            "the cluster may be electing a leader, or has lost its majority: `muster cluster status \
             --stale` shows the view of a single replica; `muster --deadline 1m ...` (before the command) \
             waits longer"
        }
        ClientError::NotFound { .. } => {
            "replicas publish themselves there if they run with `etcd.endpoints` (--etcd), under \
             /muster/<cluster id>/ or MUSTER_ETCD_PREFIX; --address host:port[,host:port...] works \
             without etcd"
        }
        ClientError::Config { field: "etcd", .. } => {
            "give --etcd or MUSTER_ETCD as host:port[,host:port...], or https://host:port with \
             MUSTER_ETCD_CACERT (`etcd.ca`; others in docs/etcd.md); --address host:port[,host:port...] \
             works without etcd"
        }
        ClientError::Config { field: "tls", .. } => {
            "MUSTER_CACERT, MUSTER_CERT and MUSTER_KEY, or `ca`, `certificate` and `key` of a context, \
             must be PEM files (docs/security.md)"
        }
        ClientError::Config { field: "token", .. } => return None,
        ClientError::Config { .. } => {
            "give --address host:port[,host:port...], MUSTER_ADDR, or a context"
        }
        ClientError::OtherRevision { .. } => {
            "try another replica with --address; all can show past revisions once all run this version"
        }
        ClientError::Compacted { .. } | ClientError::Malformed { .. } => return None,
        ClientError::Refused { operation, refusal } => {
            return refused(operation, refusal).map(str::to_owned);
        }
    };
    Some(text.to_owned())
}

/// Advice for a TLS mismatch between the command and the replicas.
const fn tls_mismatch_help(mismatch: TlsMismatch) -> &'static str {
    match mismatch {
        TlsMismatch::PeerEncrypts => {
            "set the certificate of the cluster's authority: MUSTER_CACERT=ca.pem, or `ca` of a context \
             (docs/security.md)"
        }
        TlsMismatch::PeerIsPlain => {
            "this cluster has no certificates, or is not the intended one: unset MUSTER_CACERT, or choose \
             a context or an address"
        }
        TlsMismatch::Certificate => {
            "MUSTER_CACERT (`ca` of a context) must be the authority of this cluster, --address or \
             MUSTER_ADDR a name in the replica's certificate, and MUSTER_CERT a certificate of the same \
             authority (docs/security.md)"
        }
    }
}

fn refused(operation: &str, refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal.reason.as_str() {
        "UNKNOWN_JOB" => "`muster job list` shows the known jobs",
        "LAST_HOST" => "--force blocks it anyway; --dry-run shows the impact",
        // The refusal itself shows how to list the existing ones.
        "UNKNOWN_QUEUE" => "create it with `muster queue set`",
        "QUEUE_FULL" => "wait, cancel jobs, or raise the limit with `muster queue set`",
        "NO_LOGS" => "`muster job get` shows the attempts; -f waits for future output",
        "HOST_UNREACHABLE" if operation == READING_OUTPUT => {
            "the host keeps the output; it can be read once its worker is back"
        }
        "HOST_UNREACHABLE" => {
            "`muster host list` shows whether it is up; its worker must reconnect first"
        }
        "REPLICA_UNREACHABLE" => {
            "nothing was changed: the replica must be running and reachable by the leader at this address \
             (`muster cluster add --help`)"
        }
        "NOT_RUNNING" => "`muster job get` shows the state of its tasks",
        "REVISION_TOO_OLD" => {
            "try another replica with --address, which may keep more; an older backup can be restored \
             into a separate cluster"
        }
        "REVISION_INSIDE" => "use one of the two revisions",
        // With certificates or tokens, neither applies.
        "NOT_YOURS" if refusal.metadata.contains_key(ADMINS_BY_SETTINGS) => {
            "set MUSTER_USER to your name; the replicas' setting `admins` lists the admins"
        }
        _ => return None,
    })
}

/// An error with all its causes on one line.
#[cfg(feature = "server")]
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use muster_proto::status;

    use super::*;

    fn failure(operation: &'static str, reason: &str, facts: &[&str]) -> Failure {
        let facts = facts.iter();
        let refusal = Refusal {
            reason: reason.to_owned(),
            message: "h2 protocol error".to_owned(),
            metadata: facts
                .map(|fact| ((*fact).to_owned(), String::new()))
                .collect(),
            ..Refusal::from(&status::not_leader(None))
        };
        let refusal = Box::new(refusal);
        Failure::from(ClientError::Refused { operation, refusal })
    }

    fn help_of(operation: &'static str, reason: &str, facts: &[&str]) -> String {
        failure(operation, reason, facts).help.unwrap_or_default()
    }

    #[test]
    fn the_setting_admins_is_suggested_only_where_it_applies() {
        assert_eq!(help_of("submit the job", "NOT_YOURS", &[]), "");
        let open = help_of("save a snapshot", "NOT_YOURS", &[ADMINS_BY_SETTINGS]);
        assert!(open.contains("`admins`"), "{open}");
    }

    #[test]
    fn only_errors_of_reading_output_mention_that_the_host_keeps_it() {
        let logs = help_of(READING_OUTPUT, "HOST_UNREACHABLE", &[]);
        assert!(logs.contains("keeps the output"), "{logs}");
        let command = help_of(RUNNING_COMMAND, "HOST_UNREACHABLE", &[]);
        assert!(command.contains("`muster host list`"), "{command}");
    }

    #[test]
    fn a_command_of_a_lost_replica_reports_the_loss() {
        let gone = failure(RUNNING_COMMAND, "Unknown", &[]).text();
        assert!(gone.contains("its replica is gone"), "{gone}");
        let refused = failure(RUNNING_COMMAND, "NOT_RUNNING", &[]).text();
        assert!(!refused.contains("is gone"), "{refused}");
    }

    #[test]
    fn an_invalid_connection_setting_is_a_usage_error() {
        let failure = |field| {
            let rule = "broken".to_owned();
            Failure::from(ClientError::Config { field, rule })
        };
        assert_eq!(failure("addresses").exit(), Exit::Usage);
        let files = failure("tls").help.unwrap_or_default();
        assert!(files.contains("MUSTER_CACERT"), "{files}");
    }
}
