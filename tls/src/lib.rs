//! TLS of replicas, workers and clients.
//!
//! | part | what |
//! |---|---|
//! | [`TlsSettings`] | which files: the same three options for every role |
//! | [`Tls`] | what they hold, read again when they change |
//! | [`PeerRole`] | who a certificate speaks for |
//! | [`Dialer`] | opens connections: plain ones, or to replicas that prove that they are some |
//! | [`Token`] | how a user proves who it is without a certificate |
//! | [`incoming`] | accepts connections, and knows whose they are |
//! | [`issue`] | makes an authority and certificates for a start |
#![forbid(unsafe_code)]

mod dialer;
mod error;
mod incoming;
pub mod issue;
mod material;
mod peer_role;
mod private_file;
mod settings;
mod token;

pub use dialer::Dialer;
pub use error::TlsError;
pub use incoming::{SecuredConnection, SecuredPeer, incoming};
pub use material::{FILES_LOOKED_AT_EVERY, Tls, describe_metrics};
pub use peer_role::{PeerRole, role_of};
pub use private_file::create_private;
pub use settings::{TlsSettings, is_loopback};
pub use token::Token;
