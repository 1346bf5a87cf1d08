//! Whom this host's tasks run as: which account, and which may not be it.

mod config;
mod places;
mod refusal;

use std::collections::BTreeMap;
use std::io;

use muster_supervisor::{Account, TaskIdentity};
use rustix::process::geteuid;

pub use config::{RunAs, TasksConfig};
pub(crate) use places::{PlaceError, open_to_accounts};
pub(crate) use refusal::Reason;
use refusal::Refusal;

use crate::metrics;

/// The name of the host's label that says whom tasks run as.
pub(crate) const LABEL: &str = "muster.run-as";

/// Why a worker that is to run tasks as others does not start.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// It is not root.
    #[error(
        "`tasks.run_as` is `{0}`, but this worker is not root: only root runs tasks as others; start it as root, or set `tasks.run_as = \
         \"agent\"`"
    )]
    NotRoot(String),
    /// It is.
    #[error(
        "`tasks.run_as` is `agent`, and this worker is root: tasks run as root only where the host allows it (`tasks.allow_root`); let them run \
         as `submitter`, or as an account of your choice"
    )]
    Root,
    /// It is, and nobody proves who they are.
    #[error(
        "this worker is root and has no certificates: its tasks would run as root, for whoever reaches its replicas. Give it certificates \
         (`tls`), name an account that runs them (`tasks.run_as`), start it as another user, or allow it (`tasks.allow_root = true`)"
    )]
    Unproven,
    /// An account that the settings name is none that tasks may run as.
    #[error("`{key}`: {reason}")]
    Account {
        /// Where it is named.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What tasks need of the data directory is not open to them.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Whom this host's tasks run as.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    whose: Whose,
    allow_root: bool,
    min_uid: u32,
    /// Why none of them can run, if what they need is not open to them.
    closed: Option<Refusal>,
}

#[derive(Clone, Debug)]
enum Whose {
    /// The agent's.
    Agent,
    /// One account, as it was when the agent started.
    One(Account),
    /// Of the user of each, who may have another name here.
    Submitters(BTreeMap<String, String>),
}

impl Accounts {
    /// The agent's user for all tasks.
    #[cfg(test)]
    pub(crate) const fn agents() -> Self {
        Self {
            whose: Whose::Agent,
            allow_root: false,
            min_uid: config::USERS_BEGIN,
            closed: None,
        }
    }

    /// As the settings say. `has_proof`: replicas and workers have certificates, so users have proven who they are.
    ///
    /// # Errors
    /// What cannot be so on this host.
    pub(crate) fn open(config: &TasksConfig, has_proof: bool) -> Result<Self, AccountsError> {
        let is_root = geteuid().is_root();
        let mut accounts = Self {
            whose: Whose::Agent,
            allow_root: config.allow_root,
            min_uid: config.min_uid,
            closed: None,
        };
        match &config.run_as {
            RunAs::Auto if !is_root => return Ok(accounts),
            RunAs::Auto if !has_proof && !config.allow_root => return Err(AccountsError::Unproven),
            RunAs::Auto if !has_proof => {
                tracing::warn!(
                    "this worker is root and has no certificates: tasks run as root, for whoever reaches its replicas (`tasks.allow_root`)"
                );
                return Ok(accounts);
            }
            RunAs::Agent if is_root && !config.allow_root => return Err(AccountsError::Root),
            RunAs::Agent => return Ok(accounts),
            named if !is_root => return Err(AccountsError::NotRoot(named.clone().into())),
            RunAs::Account(name) => {
                if let Some(account) = accounts.named("tasks.run_as", name)? {
                    accounts.whose = Whose::One(account);
                }
            }
            RunAs::Submitter | RunAs::Auto => {
                for (user, name) in &config.users {
                    accounts.named(&format!("tasks.users.{user}"), name)?;
                }
                accounts.whose = Whose::Submitters(config.users.clone());
            }
        }
        Ok(accounts)
    }

    /// An account that the settings name; none if that is root, and may be.
    fn named(&self, key: &str, name: &str) -> Result<Option<Account>, AccountsError> {
        let found = self.find(name).map_err(|refusal| AccountsError::Account {
            key: key.to_owned(),
            reason: refusal.words,
        })?;
        tracing::info!(account = name, uid = found.uid, "tasks may run as it");
        Ok((found.uid != 0).then_some(found))
    }

    /// Whether tasks run as others than the agent.
    pub(crate) const fn are_others(&self) -> bool {
        !matches!(self.whose, Whose::Agent)
    }

    /// What the host's label says; none where tasks run as the agent.
    pub(crate) fn label(&self) -> Option<String> {
        match &self.whose {
            Whose::Agent => None,
            Whose::One(account) => Some(account.name.clone()),
            Whose::Submitters(_) => Some(String::from(RunAs::Submitter)),
        }
    }

    /// Runs no task any more, because of this: those that run already go on, as they would not if the agent did not start.
    pub(crate) fn close(&mut self, error: &PlaceError) {
        tracing::error!(%error, "no task begins on this host");
        self.closed = Some(Refusal::new(Reason::Closed, error.to_string()));
    }

    /// Who a task of a user is here. The user database may be on another machine, and is asked off the runtime's threads.
    pub(crate) async fn identity_of(&self, user: &str) -> TaskIdentity {
        let found = if matches!(self.whose, Whose::Submitters(_)) {
            let (accounts, user) = (self.clone(), user.to_owned());
            let found = tokio::task::spawn_blocking(move || accounts.look_up(&user)).await;
            found.unwrap_or_else(|error| {
                let words = format!("looking the account up broke off: {error}");
                Err(Refusal::new(Reason::Lookup, words))
            })
        } else {
            self.look_up(user)
        };
        let (account, refusal) = match found {
            Ok(account) => (account, None),
            Err(refusal) => {
                metrics::task_refused(refusal.reason);
                (None, Some(refusal.told()))
            }
        };
        let any_container_user = self.allow_root && self.are_others();
        TaskIdentity {
            account,
            refusal,
            any_container_user,
        }
    }

    /// The account; none if it is the agent's.
    fn look_up(&self, user: &str) -> Result<Option<Account>, Refusal> {
        if let Some(refusal) = &self.closed {
            return Err(refusal.clone());
        }
        let account = match &self.whose {
            Whose::Agent => return Ok(None),
            Whose::One(account) => account.clone(),
            Whose::Submitters(names) => self.of_submitter(names, user)?,
        };
        // Root runs it as it is itself.
        Ok(Some(account).filter(|account| account.uid != 0))
    }

    fn of_submitter(
        &self,
        names: &BTreeMap<String, String>,
        user: &str,
    ) -> Result<Account, Refusal> {
        if user.is_empty() {
            return Err(Refusal::new(
                Reason::Unnamed,
                "tasks run as their job's user here (`tasks.run_as`), and the leader does not say who that is: it is of an older version, \
                 upgrade the replicas first",
            ));
        }
        let name = names.get(user).map_or(user, String::as_str);
        self.find(name).map_err(|Refusal { reason, words }| {
            let words = format!("tasks of the user `{user}` do not run here: {words}");
            Refusal { reason, words }
        })
    }

    /// The account of a name, if tasks may run as it.
    ///
    /// # Errors
    /// Why they may not, with the way out.
    fn find(&self, name: &str) -> Result<Account, Refusal> {
        self.judge(name, Account::find(name))
    }

    fn judge(&self, name: &str, found: io::Result<Option<Account>>) -> Result<Account, Refusal> {
        let account = match found {
            Ok(Some(account)) => account,
            Ok(None) => {
                let words = format!(
                    "this host has no account `{name}`: make one, or name another one (`tasks.users`, `tasks.run_as` of the worker)"
                );
                return Err(Refusal::new(Reason::Missing, words));
            }
            Err(error) => {
                let words = format!("looking the account `{name}` up failed: {error}");
                return Err(Refusal::new(Reason::Lookup, words));
            }
        };
        let uid = account.uid;
        if uid == 0 && !self.allow_root {
            let words = format!(
                "the account `{name}` is root (uid 0), as which tasks run only where the host allows it (`tasks.allow_root` of the worker)"
            );
            return Err(Refusal::new(Reason::Forbidden, words));
        }
        if uid != 0 && uid < self.min_uid {
            let words = format!(
                "the account `{name}` has the uid {uid}, and those below {} are the system's own (`tasks.min_uid` of the worker)",
                self.min_uid
            );
            return Err(Refusal::new(Reason::Forbidden, words));
        }
        Ok(account)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn submitters(allow_root: bool, names: &[(&str, &str)]) -> Accounts {
        let names = { names.iter() }.map(|(user, name)| ((*user).to_owned(), (*name).to_owned()));
        Accounts {
            whose: Whose::Submitters(names.collect()),
            allow_root,
            min_uid: 1_000,
            closed: None,
        }
    }

    fn refusal(accounts: &Accounts, user: &str) -> (&'static str, String) {
        let refusal = accounts.look_up(user).unwrap_err();
        (refusal.reason.word(), refusal.told())
    }

    #[test]
    fn a_submitter_is_the_account_of_that_name_or_the_one_that_the_host_names() {
        let accounts = submitters(false, &[("ada@example.org", "nobody")]);
        for user in ["nobody", "ada@example.org"] {
            let account = accounts.look_up(user).unwrap();
            assert_eq!(account, Account::find("nobody").unwrap(), "{user}");
        }
    }

    #[test]
    fn who_has_no_account_or_one_of_the_system_is_refused_with_the_way_out() {
        let accounts = submitters(false, &[("eve", "root")]);
        for (user, account, kind, way_out) in [
            ("no-such-user", "`no-such-user`", "missing", "tasks.users"),
            ("root", "`root`", "forbidden", "tasks.allow_root"),
            ("eve", "`root`", "forbidden", "tasks.allow_root"),
            ("daemon", "`daemon`", "forbidden", "tasks.min_uid"),
            ("0", "`0`", "missing", "tasks.users"),
            ("", "job's user", "unnamed", "upgrade the replicas"),
        ] {
            let (reason, why) = refusal(&accounts, user);
            assert_eq!(reason, kind, "{why}");
            assert!(
                why.starts_with("NO_ACCOUNT: ") && why.contains(account),
                "{why}"
            );
            assert!(why.contains(way_out), "{why}");
        }
    }

    #[test]
    fn a_user_database_that_does_not_answer_is_no_missing_account() {
        let failed = Err(io::Error::from(io::ErrorKind::TimedOut));
        let refusal = submitters(false, &[]).judge("ada", failed).unwrap_err();
        assert_eq!(refusal.reason, Reason::Lookup);
        assert!(refusal.told().starts_with("ACCOUNT_LOOKUP: "));
    }

    #[tokio::test]
    async fn a_refusal_goes_to_the_supervisor_and_is_counted() {
        let exporter = muster_service::exporter::install().unwrap();
        let mut accounts = submitters(true, &[]);
        let identity = accounts.identity_of("nobody").await;
        assert_eq!(identity.account, Account::find("nobody").unwrap());
        assert_eq!(identity.refusal, None);
        assert!(identity.any_container_user);
        accounts.closed = Some(Refusal::new(Reason::Closed, "/data is not open"));
        let identity = accounts.identity_of("nobody").await;
        assert_eq!(identity.account, None);
        assert_eq!(
            identity.refusal.as_deref(),
            Some("NO_ACCOUNT: /data is not open")
        );
        let counted = "muster_worker_tasks_refused_total{reason=\"closed\"} 1";
        let page = exporter.render();
        assert!(page.contains(counted), "{page}");
    }

    #[test]
    fn root_is_itself_where_the_host_allows_it() {
        assert_eq!(submitters(true, &[]).look_up("root"), Ok(None));
    }

    #[test]
    fn a_worker_that_is_root_runs_tasks_as_root_only_by_its_hosts_word() {
        let config = |run_as: &str, allow_root| TasksConfig {
            run_as: RunAs::from(run_as.to_owned()),
            allow_root,
            ..TasksConfig::default()
        };
        let open = |run_as: &str, allow_root, has_proof| {
            Accounts::open(&config(run_as, allow_root), has_proof)
        };
        if !geteuid().is_root() {
            for run_as in ["submitter", "nobody"] {
                let error = open(run_as, false, true).unwrap_err();
                assert!(matches!(error, AccountsError::NotRoot(_)), "{error}");
            }
            assert_eq!(open("auto", false, true).unwrap().label(), None);
            return;
        }
        // Without certificates nobody has proven anything: that is no word of the host.
        let error = open("auto", false, false).unwrap_err();
        assert!(matches!(error, AccountsError::Unproven), "{error}");
        assert!(error.to_string().contains("tasks.allow_root"), "{error}");
        assert_eq!(open("auto", true, false).unwrap().label(), None);
        let label = |run_as| open(run_as, false, true).unwrap().label();
        assert_eq!(label("auto").as_deref(), Some("submitter"));
        assert_eq!(label("nobody").as_deref(), Some("nobody"));
        assert!(matches!(
            open("agent", false, true),
            Err(AccountsError::Root)
        ));
        assert_eq!(open("agent", true, true).unwrap().label(), None);
        for missing in ["no-such-account", "root", "daemon"] {
            let error = open(missing, false, true).unwrap_err().to_string();
            assert!(
                error.contains("tasks.run_as") && error.contains(missing),
                "{error}"
            );
        }
        let users = BTreeMap::from([("ada".to_owned(), "no-such-account".to_owned())]);
        let named = TasksConfig {
            users,
            ..config("submitter", false)
        };
        let error = Accounts::open(&named, true).unwrap_err().to_string();
        assert!(error.contains("tasks.users.ada"), "{error}");
    }
}
