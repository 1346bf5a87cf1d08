//! Users, rights, certificates and accounts.

mod accounts;
mod identities;
mod joining;
mod oidc;
mod security;
