//! Isolating members of a local cluster whose network supports it.

use std::io;

use crate::cluster::{ClusterError, Direction, LocalCluster, Network, failed};

impl LocalCluster {
    /// Cuts a replica off from the other replicas and from the workers, but not from clients.
    ///
    /// # Errors
    /// If the cluster has no such network, or it cannot be changed.
    pub fn part_replica(&self, index: usize) -> Result<(), ClusterError> {
        let (network, host) = (self.own_network()?, self.replicas[index].host);
        for other in self.hosts().filter(|other| *other != host) {
            network.part(host, other)?;
        }
        Ok(())
    }

    /// Reconnects a replica to all others.
    ///
    /// # Errors
    /// If the cluster has no such network, or it cannot be changed.
    pub fn join_replica(&self, index: usize) -> Result<(), ClusterError> {
        let (network, host) = (self.own_network()?, self.replicas[index].host);
        for other in self.hosts().filter(|other| *other != host) {
            network.join(host, other)?;
        }
        Ok(())
    }

    /// Drops packets of a replica, including those of clients.
    ///
    /// # Errors
    /// If the cluster has no such network, or it cannot be changed.
    pub fn cut_replica(&self, index: usize, direction: Direction) -> Result<(), ClusterError> {
        let host = self.replicas[index].host;
        Ok(self.own_network()?.cut(host, direction)?)
    }

    /// Delivers packets of a replica again.
    ///
    /// # Errors
    /// If the cluster has no such network, or it cannot be changed.
    pub fn heal_replica(&self, index: usize, direction: Direction) -> Result<(), ClusterError> {
        let host = self.replicas[index].host;
        Ok(self.own_network()?.heal(host, direction)?)
    }

    /// Numbers of all hosts in the cluster's network.
    fn hosts(&self) -> impl Iterator<Item = usize> + '_ {
        let members = self.replicas.iter().chain(&self.workers);
        members.map(|member| member.host)
    }

    /// Cuts a worker's host off from all others.
    ///
    /// # Errors
    /// If the cluster has no such network, or it cannot be changed.
    pub fn cut_worker(&self, index: usize, direction: Direction) -> Result<(), ClusterError> {
        let host = self.workers[index].host;
        Ok(self.own_network()?.cut(host, direction)?)
    }

    /// Reconnects a worker's host.
    ///
    /// # Errors
    /// If the cluster has no such network, or it cannot be changed.
    pub fn heal_worker(&self, index: usize, direction: Direction) -> Result<(), ClusterError> {
        let host = self.workers[index].host;
        Ok(self.own_network()?.heal(host, direction)?)
    }

    fn own_network(&self) -> Result<&Network, ClusterError> {
        let none = || io::Error::other("hosts have no network (set `ClusterOptions::network`)");
        let network = self.network.as_ref();
        network.ok_or_else(|| failed("cutting a host off")(none()))
    }
}
