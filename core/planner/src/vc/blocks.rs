//! Placement of subgroups that share cells: each goes whole into one cell of its level, and cells are tried
//! one after the other until all have theirs.

use std::collections::BTreeSet;

use muster_engine::cells::{Allocation, CellPlacement, Request, serve};
use muster_model::ids::HostId;
use muster_model::topology::{CellId, GpuMask, Level};

use crate::vc::cell_request::Block;
use crate::vc::hosts::Hosts;
use crate::vc::shared_cells;

/// Total number of cells tried for the subgroups of one unit. Beyond it a gang may wait although its
/// subgroups have room.
const TRIED_MAX: usize = 512;

/// Serves all blocks of a request in order.
pub(super) fn serve_all<'r, 'a>(
    allocation: &Allocation,
    request: &Request,
    hosts: &Hosts<'r, 'a>,
    blocks: &[Block],
) -> Option<CellPlacement<Hosts<'r, 'a>>> {
    if blocks.iter().all(|block| block.shared.is_none()) {
        return serve(allocation, request, hosts);
    }
    let mut search = Search {
        request,
        tries_left: TRIED_MAX,
    };
    let begun = Begun {
        allocation: allocation.clone(),
        hosts: hosts.clone(),
        placed: vec![None; request.tasks.len()],
        cells: BTreeSet::new(),
    };
    let done = search.go_on(blocks, begun)?;
    // A cell that several blocks use is bound once for all of them.
    let mut bound = allocation.clone();
    for cell in &done.cells {
        bound.bind(&request.queue, cell).ok()?;
    }
    Some(CellPlacement {
        tasks: done.placed.into_iter().collect::<Option<Vec<_>>>()?,
        cells: done.cells.into_iter().collect(),
        allocation: bound,
        room: done.hosts,
    })
}

/// Partial result of the search.
#[derive(Clone)]
struct Begun<'r, 'a> {
    allocation: Allocation,
    hosts: Hosts<'r, 'a>,
    placed: Vec<Option<(HostId, GpuMask)>>,
    cells: BTreeSet<CellId>,
}

struct Search<'q> {
    request: &'q Request,
    tries_left: usize,
}

impl Search<'_> {
    fn go_on<'r, 'a>(&mut self, blocks: &[Block], begun: Begun<'r, 'a>) -> Option<Begun<'r, 'a>> {
        let Some((block, rest)) = blocks.split_first() else {
            return Some(begun);
        };
        let cells = block
            .shared
            .map_or_else(Vec::new, |(level, _)| self.cells(&begun, level));
        for cell in cells {
            if !begun.hosts.may_hold(&cell, block.gpus) {
                continue;
            }
            let inside = begun.hosts.within(begun.allocation.tree().gpus(&cell));
            if let Some(done) = self.place_block(block, rest, &begun, &inside) {
                return Some(done);
            }
        }
        match block.is_required() {
            true => None,
            false => self.place_block(block, rest, &begun, &begun.hosts),
        }
    }

    fn cells(&self, begun: &Begun<'_, '_>, level: Level) -> Vec<CellId> {
        shared_cells(&begun.allocation, level, &self.request.queue)
    }

    /// Places a block on some hosts, and the remaining blocks wherever allowed.
    fn place_block<'r, 'a>(
        &mut self,
        block: &Block,
        rest: &[Block],
        begun: &Begun<'r, 'a>,
        hosts: &Hosts<'r, 'a>,
    ) -> Option<Begun<'r, 'a>> {
        self.tries_left = self.tries_left.checked_sub(1)?;
        let pieces = block.pieces.iter().map(|piece| &self.request.tasks[*piece]);
        let request = Request {
            queue: self.request.queue.clone(),
            pinned: self.request.pinned.clone(),
            tasks: pieces.cloned().collect(),
        };
        let served = serve(&begun.allocation, &request, hosts)?;
        let mut next = begun.clone();
        for (piece, place) in block.pieces.iter().zip(&served.tasks) {
            next.placed[*piece] = Some(*place);
        }
        let pieces = request.tasks.iter();
        let places: Vec<_> = pieces.zip(served.tasks.iter().copied()).collect();
        next.hosts = begun.hosts.after(&served.room, &places);
        next.allocation = served.allocation;
        next.cells.extend(served.cells);
        self.go_on(rest, next)
    }
}
