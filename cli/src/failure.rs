//! Failures as a user meets them: what failed and why, and what to do.

use muster_client::{ClientError, Refusal, TlsMismatch};

use crate::exit::Exit;
use crate::output::{Tone, note, paint};

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What failed and why; one line each.
    lines: Vec<String>,
    /// What to do.
    help: Option<String>,
    /// The cluster's refusal, if it is one.
    refusal: Option<Box<Refusal>>,
    exit: Exit,
}

impl Failure {
    /// A failure that says what failed and why.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            lines: vec![message.into()],
            help: None,
            refusal: None,
            exit: Exit::Error,
        }
    }

    /// What the user wrote is not usable.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(message).exiting(Exit::Usage)
    }

    /// Several things are wrong at once.
    pub(crate) fn list(lines: Vec<String>) -> Self {
        Self {
            lines,
            help: None,
            refusal: None,
            exit: Exit::Error,
        }
    }

    /// Something that cannot happen did.
    pub(crate) fn internal(error: &dyn std::error::Error) -> Self {
        Self::new(format!("internal error: {error}")).help("please report this as a bug")
    }

    /// Whoever read our output went away: nothing to tell, nobody to tell it to.
    pub(crate) fn reader_gone() -> Self {
        Self {
            lines: Vec::new(),
            help: None,
            refusal: None,
            exit: Exit::Ok,
        }
    }

    /// Whether it is only that nobody reads our output any more.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.lines.is_empty()
    }

    /// A submission's failure. Where nobody knows whether it was accepted, it says how to repeat it without submitting it twice.
    pub(crate) fn of_submission(error: ClientError, request_id: &str) -> Self {
        let is_unknown = matches!(error, ClientError::DeadlineExceeded { .. });
        let mut failure = Self::from(error);
        if is_unknown {
            let repeat = format!(
                "it may have been accepted: within 24 hours the same command with --request-id {request_id} submits nothing twice"
            );
            let help = failure.help.take();
            failure.help = Some(help.map_or(repeat.clone(), |help| format!("{repeat}; {help}")));
        }
        failure
    }

    /// Says what each line is about.
    #[must_use]
    pub(crate) fn about(mut self, subject: &str) -> Self {
        for line in &mut self.lines {
            *line = format!("{subject}: {line}");
        }
        self
    }

    /// Adds what to do.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets how the command ends.
    #[must_use]
    pub(crate) fn exiting(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// What failed and why, in one line.
    pub(crate) fn text(&self) -> String {
        self.lines.join("; ")
    }

    /// The cluster's refusal, if it is one.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_deref()
    }

    /// How the command ends.
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
            _ => vec![error.to_string()],
        };
        let mut failure = Self::list(lines);
        failure.refusal = error.refusal().cloned().map(Box::new);
        match help {
            Some(help) => failure.help(help),
            None => failure,
        }
    }
}

fn violations(refusal: &Refusal) -> Vec<String> {
    let violations = refusal.violations.iter();
    violations.map(ToString::to_string).collect()
}

/// What to do about an error, where that is known.
fn help(error: &ClientError) -> Option<String> {
    if let Some(mismatch) = error.tls_mismatch() {
        return Some(apart(mismatch).to_owned());
    }
    let text = match error {
        ClientError::Unreachable { .. } => {
            "is the cluster running? `muster dev` starts one here; name the replicas of another with \
             --address host:port[,host:port...] or MUSTER_ADDR"
        }
        ClientError::DeadlineExceeded { .. } => {
            "the cluster may be choosing a leader, or has lost its majority: `muster cluster status \
             --stale` shows what a single replica sees; `muster --deadline 1m ...`, before the command's words, gives more time"
        }
        ClientError::NotFound { .. } => {
            "replicas publish themselves there once they run with `etcd.endpoints` (--etcd), under /muster/<cluster id>/ or what \
             MUSTER_ETCD_PREFIX says; --address host:port[,host:port...] goes without etcd"
        }
        ClientError::Config { field: "etcd", .. } => {
            "give --etcd or MUSTER_ETCD as host:port[,host:port...], or https://host:port with MUSTER_ETCD_CACERT (`etcd.ca`; \
             docs/etcd.md has the others); --address host:port[,host:port...] goes without etcd"
        }
        ClientError::Config { .. } => {
            "give --address host:port[,host:port...], MUSTER_ADDR, or a context"
        }
        ClientError::OtherRevision { .. } => {
            "--address names another replica; all can show the past once all run this version"
        }
        ClientError::Compacted { .. } | ClientError::Malformed { .. } => return None,
        ClientError::Refused { refusal, .. } => return refused(refusal).map(str::to_owned),
    };
    Some(text.to_owned())
}

/// What to do where TLS keeps the command and the replicas apart.
const fn apart(mismatch: TlsMismatch) -> &'static str {
    match mismatch {
        TlsMismatch::PeerEncrypts => {
            "name the certificate of the cluster's authority: MUSTER_CACERT=ca.pem, or `ca` of a context (docs/security.md)"
        }
        TlsMismatch::PeerIsPlain => {
            "this cluster has no certificates, or it is another one: unset MUSTER_CACERT, or choose a context or an address"
        }
        TlsMismatch::Certificate => {
            "MUSTER_CACERT (`ca` of a context) must name the authority of this very cluster, --address or MUSTER_ADDR a name that stands in \
             the replica's certificate, and MUSTER_CERT one of the same authority (docs/security.md)"
        }
    }
}

fn refused(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal.reason.as_str() {
        "UNKNOWN_JOB" => "`muster job list` shows the jobs that the cluster remembers",
        "LAST_HOST" => "--force blocks it all the same; --dry-run shows what that hits",
        "UNKNOWN_HOST" => "`muster host list` shows the hosts",
        "UNKNOWN_GPU" => "`muster gpu list` shows the GPUs",
        "UNKNOWN_QUEUE" => "`muster queue list` shows the queues, `muster queue set` makes one",
        "QUEUE_FULL" => "wait, cancel jobs, or raise the limit with `muster queue set`",
        "NO_LOGS" => {
            "`muster job get` shows the attempts; -f waits for output that is still to come"
        }
        "HOST_UNREACHABLE" => "the host keeps the output; it can be read once its worker is back",
        "REPLICA_UNREACHABLE" => {
            "nothing was changed: it must run already, and the leader must reach it there (`muster cluster add --help`)"
        }
        "NOT_RUNNING" => "`muster job get` shows where its tasks stand",
        "REVISION_TOO_OLD" => {
            "--address names another replica, which may keep more; a backup of before can be restored into a cluster of its own"
        }
        "REVISION_INSIDE" => "ask for one of the two revisions",
        "NOT_YOURS" => {
            "MUSTER_USER says who you are; an admin is one who is named in the replicas' setting `admins`"
        }
        _ => return None,
    })
}
