//! Placement of an independent task: best fit over the hosts of all accepted GPU models.

use muster_model::command::TaskPlacement;
use muster_model::topology::TaskScope;

use crate::capacity::{Capacity, uuids};
use crate::unit::request::{Part, Shared, UnitRequest, task_of};
use crate::unit::{Lack, Placed, Shortage, shortage};

pub(super) fn place(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
) -> Result<Placed, Shortage> {
    let Some(part) = request.parts.first() else {
        return Ok(Placed { tasks: Vec::new() });
    };
    let is_unknown = |shared: Shared| shared.required && shared.level.is_none();
    if part.shared.is_some_and(is_unknown) {
        return Err(Shortage {
            lack: Lack::UnknownLevel,
            ..shortage::of_task(capacity, part)
        });
    }
    let preferred = (part.own_preferred != part.own).then_some(part.own_preferred);
    let owns = preferred.into_iter().chain([part.own]);
    for own in owns {
        if let Some(task) = place_with(capacity, request, part, own) {
            return Ok(Placed { tasks: vec![task] });
        }
    }
    Err(shortage::of_task(capacity, part))
}

fn place_with(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
    part: &Part<'_>,
    own: TaskScope,
) -> Option<TaskPlacement> {
    let best = part
        .classes
        .iter()
        .enumerate()
        .filter_map(|(preference, class)| {
            let need = part.need(request.requester, class, own);
            if request.spreads() {
                let (free, host) = capacity.emptiest_fit(need)?;
                return Some((u32::MAX - free, preference, host));
            }
            let (free, host) = capacity.best_fit(need)?;
            Some((free, preference, host))
        })
        .min();
    let (_, preference, host) = best?;
    let need = part.need(request.requester, &part.classes[preference], own);
    let gpus = capacity.take(host, need, 1);
    let record = capacity.state().host(host)?;
    Some(TaskPlacement {
        task: task_of(part, 0),
        host,
        gpus: uuids(record, gpus.first().copied().unwrap_or_default()),
    })
}
