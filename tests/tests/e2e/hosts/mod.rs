//! Agents, health of hosts and GPUs, maintenance.

mod agents;
mod health;
mod maintenance;
mod systemd;
