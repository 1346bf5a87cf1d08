//! Levels of a cluster's cells: the configured ones, then those reported by hosts.

use std::collections::BTreeSet;

use imbl::OrdMap;

use crate::limits;
use crate::topology::Topology;

/// Number of hosts per reported list of level names, largest first. Empty lists are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LevelVotes(OrdMap<Vec<String>, u32>);

impl LevelVotes {
    pub(super) fn add(&mut self, levels: Vec<String>) {
        if !levels.is_empty() {
            *self.0.entry(levels).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, levels: &Vec<String>) {
        if let Some(hosts) = self.0.get_mut(levels) {
            *hosts -= 1;
            if *hosts == 0 {
                self.0.remove(levels);
            }
        }
    }

    /// Lists by descending number of hosts; among equals in the order of their names.
    fn ranked(&self) -> Vec<&Vec<String>> {
        let mut ranked: Vec<(&Vec<String>, &u32)> = self.0.iter().collect();
        ranked.sort_by(|(one, one_hosts), (other, other_hosts)| {
            other_hosts.cmp(one_hosts).then(one.cmp(other))
        });
        ranked.into_iter().map(|(levels, _)| levels).collect()
    }
}

/// The levels of a cluster, without `host` and `gpu`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Levels {
    /// Above hosts, largest first.
    pub(super) above: Vec<String>,
    /// Inside hosts, largest first.
    pub(super) inside: Vec<String>,
}

impl Levels {
    /// Derives the levels from the configuration and the reports of hosts.
    ///
    /// Above hosts a location needs a cell on every level, so the levels are those of one list: the
    /// configured one, or the one that most hosts report. Inside hosts levels may be missing, so all lists
    /// that agree on the order are used, the configured one first, then by number of hosts.
    pub(super) fn of(configured: &Topology, above: &LevelVotes, inside: &LevelVotes) -> Self {
        let mut levels = Self {
            above: configured.above.clone(),
            inside: configured.inside.clone(),
        };
        if levels.above.is_empty() {
            let fits = |list: &&Vec<String>| levels.has_room_for(list, &levels.inside);
            let ranked = above.ranked();
            levels.above = ranked.into_iter().find(fits).cloned().unwrap_or_default();
        }
        for list in inside.ranked() {
            if let Some(merged) = merged(&levels.inside, list)
                && levels.has_room_for(&merged, &levels.above)
            {
                levels.inside = merged;
            }
        }
        levels
    }

    /// Adds levels of guaranteed cells even if no host has such cells any more: the shortage must be visible.
    pub(super) fn keep(&mut self, kept: &BTreeSet<&str>) {
        for level in kept {
            if !self.has(level) {
                self.inside.push((*level).to_owned());
            }
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let always = [crate::topology::HOST_LEVEL, crate::topology::GPU_LEVEL];
        let mut named = self.above.iter().chain(&self.inside);
        always.contains(&name) || named.any(|level| *level == name)
    }

    fn has_room_for(&self, list: &[String], others: &[String]) -> bool {
        list.len() + others.len() + 2 <= limits::CELL_LEVELS_MAX
            && !list.iter().any(|level| others.contains(level))
    }
}

/// Merges two lists, preserving the order of each; `None` if they disagree. Names only in the second list
/// come as late as possible.
fn merged(base: &[String], list: &[String]) -> Option<Vec<String>> {
    let mut merged = base.to_vec();
    let mut before = merged.len();
    for level in list.iter().rev() {
        match merged.iter().position(|known| known == level) {
            Some(position) if position < before => before = position,
            Some(_) => return None,
            None => merged.insert(before, level.clone()),
        }
    }
    Some(merged)
}

/// Positions in a host's list of the levels that the cluster has, in the cluster's order; `None` if the
/// orders disagree.
pub(super) fn in_order(levels: &[String], list: &[String]) -> Option<Vec<(usize, usize)>> {
    let known = list.iter().enumerate().filter_map(|(here, level)| {
        let there = levels.iter().position(|known| known == level)?;
        Some((there, here))
    });
    let positions: Vec<(usize, usize)> = known.collect();
    positions.is_sorted().then_some(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(ToOwned::to_owned).collect()
    }

    fn votes(lists: &[(&str, u32)]) -> LevelVotes {
        let mut votes = LevelVotes::default();
        for (list, hosts) in lists {
            (0..*hosts).for_each(|_| votes.add(names(list)));
        }
        votes
    }

    /// The configured levels above and inside hosts.
    fn configured(above: &str, inside: &str) -> Topology {
        Topology {
            above: names(above),
            inside: names(inside),
            ..Topology::default()
        }
    }

    fn levels(configured: &Topology, above: &[(&str, u32)], inside: &[(&str, u32)]) -> Levels {
        Levels::of(configured, &votes(above), &votes(inside))
    }

    #[test]
    fn levels_above_are_those_of_most_hosts_unless_they_are_configured() {
        let above = [("rack", 1), ("pod rack", 3), ("rack pod", 2)];
        assert_eq!(
            levels(&configured("", ""), &above, &[]).above,
            names("pod rack")
        );
        assert_eq!(
            levels(&configured("zone", ""), &above, &[]).above,
            names("zone")
        );
        // One list at a time: a name that is already used inside hosts is not used above.
        assert_eq!(
            levels(&configured("", "pod"), &above, &[]).above,
            names("rack")
        );
        assert_eq!(
            levels(&configured("", ""), &[("b", 1), ("a", 1)], &[]).above,
            names("a")
        );
    }

    #[test]
    fn levels_inside_are_all_that_agree_on_the_order() {
        let inside = [
            ("switch", 1),
            ("socket switch", 5),
            ("switch socket", 2),
            ("socket numa switch", 1),
        ];
        assert_eq!(
            levels(&configured("", ""), &[], &inside).inside,
            names("socket numa switch")
        );
        assert_eq!(
            levels(&configured("", "pcie"), &[], &inside).inside,
            names("pcie socket numa switch")
        );
        assert_eq!(
            levels(&configured("", ""), &[("socket", 1)], &[("socket", 9)]).inside,
            names("")
        );
    }

    #[test]
    fn a_level_with_a_guarantee_is_kept() {
        let mut found = levels(&configured("", ""), &[("rack", 1)], &[("socket", 1)]);
        found.keep(&BTreeSet::from(["switch", "rack", "host"]));
        assert_eq!(
            (found.above, found.inside),
            (names("rack"), names("socket switch"))
        );
    }

    #[test]
    fn votes_are_taken_back() {
        let mut votes = votes(&[("a b", 2)]);
        votes.remove(&names("a b"));
        votes.remove(&names("a b"));
        assert_eq!(votes, LevelVotes::default());
    }

    #[test]
    fn a_hosts_levels_are_found_in_the_clusters_order() {
        let cluster = names("zone pod rack");
        assert_eq!(
            in_order(&cluster, &names("pod row rack")),
            Some(vec![(1, 0), (2, 2)])
        );
        assert_eq!(in_order(&cluster, &names("rack pod")), None);
    }
}
