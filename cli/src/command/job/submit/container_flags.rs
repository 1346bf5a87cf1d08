//! Flags for the container of a job's tasks. User, entry point and GPU names need a job file.

use clap::Args;

use crate::parse::{self, HumanSize};
use muster_job_file::{ContainerFile, MountFile, PullFile};

/// The container that tasks run in.
#[derive(Clone, Debug, Args)]
pub(super) struct ContainerFlags {
    /// Run in a container of this image; the command may be omitted then
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// When the image is pulled (missing)
    #[arg(long, value_enum, value_name = "WHEN", requires = "image")]
    pull: Option<PullFile>,
    /// A folder or file of the host to mount inside: SOURCE[:TARGET][:ro]
    #[arg(long, value_name = "PATHS", value_parser = mount, requires = "image")]
    mount: Vec<MountFile>,
    /// Size of /dev/shm inside: 16GiB
    #[arg(long, value_name = "SIZE", value_parser = parse::size, requires = "image")]
    shm: Option<HumanSize>,
}

impl ContainerFlags {
    /// Each flag, and whether it is given.
    pub(super) const fn given(&self) -> [(&'static str, bool); 4] {
        [
            ("--image", self.image.is_some()),
            ("--pull", self.pull.is_some()),
            ("--mount", !self.mount.is_empty()),
            ("--shm", self.shm.is_some()),
        ]
    }

    /// The image, if there is a container.
    pub(super) fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    /// The container of the job.
    pub(super) fn container(&self) -> Option<ContainerFile> {
        Some(ContainerFile {
            image: self.image.clone()?,
            pull: self.pull.unwrap_or_default(),
            mounts: self.mount.clone(),
            shm: self.shm,
            ..ContainerFile::default()
        })
    }
}

/// The flag that sets a field of the execution.
pub(super) fn flag_of(field: &str) -> Option<&'static str> {
    let flags = [
        ("image", "--image"),
        ("pull", "--pull"),
        ("mounts", "--mount"),
        ("shm", "--shm"),
    ];
    let field = field.strip_prefix("container.")?;
    let flag = flags.iter().find(|(name, _)| field.starts_with(name));
    flag.map(|(_, flag)| *flag)
}

fn mount(text: &str) -> Result<MountFile, String> {
    let (paths, read_only) = match text.strip_suffix(":ro") {
        Some(paths) => (paths, true),
        None => (text, false),
    };
    let (source, target) = match paths.split_once(':') {
        Some((source, target)) => (source, Some(target.to_owned())),
        None => (paths, None),
    };
    if source.is_empty() || target.as_ref().is_some_and(|path| path.contains(':')) {
        return Err(format!("`{text}` is not of the form SOURCE[:TARGET][:ro]"));
    }
    Ok(MountFile {
        source: source.to_owned(),
        target,
        read_only,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_one_path_or_two_and_may_be_read_only() {
        let parts = |text: &str| {
            let mount = mount(text).unwrap();
            (mount.source, mount.target, mount.read_only)
        };
        assert_eq!(parts("/data"), ("/data".to_owned(), None, false));
        assert_eq!(parts("/data:ro"), ("/data".to_owned(), None, true));
        let both = |read_only| ("/a".to_owned(), Some("/b".to_owned()), read_only);
        assert_eq!(
            (parts("/a:/b"), parts("/a:/b:ro")),
            (both(false), both(true))
        );
        assert!(mount(":/b").is_err() && mount("/a:/b:rw").is_err());
    }
}
