//! How the tasks of a group are run on their hosts.

use serde::{Deserialize, Serialize};

use crate::spec::Container;

/// How the tasks of a group are run on their hosts. The default is a plain process, as before there were executions, which
/// the log of older builds relies on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Execution {
    /// The container that each task runs in; a process of the host if none.
    #[serde(default)]
    pub container: Option<Container>,
}
