//! Host file of a gang, in the format of MPI launchers (`MUSTER_HOSTFILE`).

use std::fmt::Write as _;

use muster_model::desired::GangHost;

use crate::files;
use crate::task::directory::TaskDirectory;

/// Writes the file if the task has hosts: one line per host, in the order of `NODE_RANK`.
///
/// # Errors
/// Why it could not be written, as a message for the user.
pub(crate) fn write(hosts: &[GangHost], directory: &TaskDirectory) -> Result<(), String> {
    if hosts.is_empty() {
        return Ok(());
    }
    let path = directory.hostfile();
    files::replace_for_owner(&path, text(hosts).as_bytes())
        .map_err(|error| format!("writing `{}` failed: {error}", path.display()))
}

fn text(hosts: &[GangHost]) -> String {
    let mut text = String::new();
    for host in hosts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} slots={}", host.address, host.slots);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_host_with_its_slots() {
        let host = |address: &str, slots| GangHost {
            address: address.to_owned(),
            slots,
        };
        let hosts = [host("10.0.0.7", 8), host("node2", 4)];
        assert_eq!(text(&hosts), "10.0.0.7 slots=8\nnode2 slots=4\n");
    }
}
