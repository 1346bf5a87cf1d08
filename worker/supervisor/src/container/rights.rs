//! Restrictions on a task's container by its account: no process of the container may have more rights on the
//! host than the account.

use std::{fs, io};

use muster_model::spec::Container;

use crate::isolation::account::Account;
use crate::task::spec::TaskIdentity;

/// The only user namespace mode that maps no host user into the container.
const MAPPED: &str = "auto";

/// Checks whether a container may have what its job requests.
///
/// # Errors
/// The refused request and the way out, as a message for the user.
pub(crate) fn may_run(container: &Container, identity: &TaskIdentity) -> Result<(), String> {
    let Some(account) = &identity.account else {
        return Ok(());
    };
    for mount in &container.mounts {
        // The engine runs as root, and would enter folders that the account may not.
        let seen = account.acting(|| fs::metadata(&mount.source));
        seen.map_err(|error| unseen(account, &mount.source, &error))?;
    }
    if identity.any_container_user {
        return Ok(());
    }
    let userns = container.userns.as_deref();
    if userns == Some(MAPPED) {
        return Ok(());
    }
    let user = container.user.as_deref();
    let asked = match (userns, user) {
        (Some(userns), _) => format!("`userns = \"{userns}\"`"),
        (None, Some(user)) if group_of(user, account).is_none() => {
            format!("`user = \"{user}\"`")
        }
        _ => return Ok(()),
    };
    Err(format!(
        "CONTAINER_USER_REFUSED: {asked} could make the container root on this host, where the task runs as the \
         account \
         `{}`: remove it, or have the host allow it (`tasks.allow_root`)",
        account.name
    ))
}

pub(super) fn unseen(account: &Account, source: &str, error: &io::Error) -> String {
    let name = &account.name;
    format!("mount `{source}` is not accessible to the task's account `{name}`: {error}")
}

/// The account of a container's processes, with their primary group; `None` if the job or the image decides.
pub(crate) fn whose<'a>(
    container: &Container,
    identity: &'a TaskIdentity,
) -> Option<(&'a Account, u32)> {
    let account = identity.account.as_ref()?;
    let group = match (&container.userns, &container.user) {
        (Some(_), _) => None,
        (None, Some(user)) => group_of(user, account),
        (None, None) => Some(account.gid),
    };
    Some((account, group?))
}

/// Primary group of a container's user, if that is the account, given in numbers: names are resolved in the
/// image. Defaults to the account's primary group, or the image would decide.
fn group_of(user: &str, account: &Account) -> Option<u32> {
    let (user, group) = user.split_once(':').unwrap_or((user, ""));
    let group = match group {
        "" => account.gid,
        group => group.parse().ok()?,
    };
    let is_account = user.parse::<u32>() == Ok(account.uid) && account.groups.contains(&group);
    is_account.then_some(group)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use muster_model::spec::Mount;
    use rustix::process::geteuid;

    use super::*;

    fn identity() -> TaskIdentity {
        TaskIdentity {
            account: Account::find("nobody").unwrap(),
            ..TaskIdentity::default()
        }
    }

    #[test]
    fn a_container_may_not_run_as_a_user_other_than_its_account() {
        let account = identity().account.unwrap();
        let own = account.uid.to_string();
        let with = |user: Option<&str>, userns: Option<&str>| Container {
            user: user.map(ToOwned::to_owned),
            userns: userns.map(ToOwned::to_owned),
            ..Container::default()
        };
        let both = format!("{own}:{}", account.gid);
        for allowed in [
            with(None, None),
            with(Some(&own), None),
            with(Some(&both), None),
            with(Some("0"), Some("auto")),
        ] {
            assert_eq!(may_run(&allowed, &identity()), Ok(()), "{allowed:?}");
        }
        let foreign_group = format!("{own}:0");
        for refused in [
            with(Some("0"), None),
            with(Some("root"), None),
            // The image decides.
            with(Some("nobody"), None),
            with(Some(&foreign_group), None),
            with(None, Some("host")),
            with(None, Some("auto:uidmapping=0:0:1")),
        ] {
            let why = may_run(&refused, &identity()).unwrap_err();
            assert!(why.contains("`nobody`") && why.contains("tasks.allow_root"));
            let free = TaskIdentity {
                any_container_user: true,
                ..identity()
            };
            assert_eq!(may_run(&refused, &free), Ok(()));
            assert_eq!(may_run(&refused, &TaskIdentity::default()), Ok(()));
        }
    }

    #[test]
    fn a_container_runs_as_its_account_also_if_the_job_names_a_numeric_user() {
        let identity = TaskIdentity {
            account: Some(Account {
                uid: 4_001,
                gid: 4_002,
                groups: vec![4_002, 4_003],
                ..Account::default()
            }),
            any_container_user: true,
            ..TaskIdentity::default()
        };
        let group_of = |user: Option<&str>, userns: Option<&str>| {
            let container = Container {
                user: user.map(ToOwned::to_owned),
                userns: userns.map(ToOwned::to_owned),
                ..Container::default()
            };
            whose(&container, &identity).map(|(_, group)| group)
        };
        for (user, group) in [
            (None, 4_002),
            (Some("4001"), 4_002),
            (Some("4001:"), 4_002),
            (Some("4001:4003"), 4_003),
        ] {
            assert_eq!(group_of(user, None), Some(group), "{user:?}");
            // Its numbers are different ones on the host.
            assert_eq!(group_of(user, Some("auto")), None, "{user:?}");
        }
        for user in ["0", "ada", "4001:0", "4001:staff", "4002:4002", ""] {
            assert_eq!(group_of(Some(user), None), None, "{user:?}");
        }
    }

    #[test]
    fn a_mount_that_the_account_cannot_access_is_refused() {
        if !geteuid().is_root() {
            crate::output::log_error("skipped: only root can check another user's access");
            return;
        }
        // A folder that only root can enter.
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let inside = home.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let container = Container {
            mounts: vec![Mount {
                source: inside.to_str().unwrap().to_owned(),
                target: "/inside".to_owned(),
                read_only: true,
            }],
            ..Container::default()
        };
        let why = may_run(&container, &identity()).unwrap_err();
        assert!(
            why.contains("is not accessible to the task's account `nobody`"),
            "{why}"
        );
    }
}
