//! Connection to the scheduler: finding its replicas, joining the cluster, and the session with the leader.
//!
//! | part | purpose |
//! |---|---|
//! | `etcd` | replicas registered in etcd |
//! | `joining` | the worker's certificate, by a join token |
//! | `session` | the stream to the leader, reopened whenever it breaks |

pub(crate) mod etcd;
pub(crate) mod joining;
pub(crate) mod session;
