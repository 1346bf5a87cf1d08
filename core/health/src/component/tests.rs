//! Components through days of faults, repairs and admin actions.

use muster_model::health::{DeviceAction, Phase, PlacementRequest};
use muster_model::time::{DAY_MS, HOUR_MS, MINUTE_MS};

use super::*;
use crate::component::condition::{HISTORY_MAX, MUTES_MAX};

fn minute(minutes: u64) -> TimeMs {
    TimeMs(minutes * MINUTE_MS)
}

fn by_rule(event: Event, rule: &str, at: TimeMs) -> Change {
    Change {
        event,
        actor: if event.is_admins() {
            Actor::Admin("ann".to_owned())
        } else {
            Actor::Rule(rule.to_owned())
        },
        rule: if event.is_admins() {
            String::new()
        } else {
            rule.to_owned()
        },
        evidence: format!("because of {rule}"),
        at,
        is_strike: true,
        expires_at: None,
        by_hand: false,
    }
}

fn change(
    condition: &mut Condition,
    event: Event,
    minutes: u64,
) -> Result<Outcome, ChangeRejected> {
    condition.change(
        by_rule(event, "ecc", minute(minutes)),
        RecoveryLimits::default(),
    )
}

/// Plays events at the given minutes, all of which are permitted.
fn play(events: &[(Event, u64)]) -> Condition {
    let mut condition = Condition::new(TimeMs(0));
    for (event, at) in events {
        let outcome = change(&mut condition, *event, *at);
        assert!(outcome.is_ok(), "{event} at {at}: {outcome:?}");
    }
    condition
}

#[test]
fn the_table_has_one_row_for_each_way_and_none_that_undoes_an_admin() {
    for (at, row) in TRANSITIONS.iter().enumerate() {
        let same = TRANSITIONS
            .iter()
            .filter(|other| (other.0, other.1) == (row.0, row.1));
        assert_eq!(same.count(), 1, "row {at}: {row:?}");
    }
    for (from, event, to) in TRANSITIONS {
        if from.is_admins() && !event.is_admins() {
            let stays = to.is_admins();
            assert!(stays || *event == Event::Expired, "{from} {event} {to}");
        }
        // Back into placement: by proof, by an admin, by the expiry of an admin's block, or because nothing
        // was done yet.
        if !from.accepts_work() && to.accepts_work() {
            let proof = [Event::CheckPassed, Event::AdminUnblock, Event::Expired];
            let untouched = (*from, *event) == (Phase::Draining, Event::Clear);
            assert!(proof.contains(event) || untouched, "{from} {event} {to}");
        }
        if *from == Phase::Rma {
            assert!(event.is_admins());
        }
    }
    // An admin's action is always accepted.
    for phase in Phase::ALL {
        assert!(next(*phase, Event::AdminBlock).is_some(), "{phase}");
        assert!(next(*phase, Event::AdminUnblock).is_some(), "{phase}");
    }
    // Every phase can be left and reached.
    for phase in Phase::ALL {
        assert!(
            TRANSITIONS
                .iter()
                .any(|row| row.0 == *phase && row.2 != *phase)
        );
        assert!(
            TRANSITIONS
                .iter()
                .any(|row| row.2 == *phase && row.0 != *phase)
        );
    }
}

#[test]
fn a_fault_is_repaired_checked_and_put_on_probation() {
    let mut gpu = play(&[
        (Event::Block, 0),
        (Event::RepairBegan, 1),
        (Event::RepairDone, 3),
    ]);
    assert_eq!((gpu.phase, gpu.strikes.at(minute(3))), (Phase::Checking, 1));
    assert_eq!(
        change(&mut gpu, Event::CheckPassed, 5),
        Err(ChangeRejected::TooEarly(minute(15)))
    );
    assert_eq!(
        change(&mut gpu, Event::CheckPassed, 15),
        Ok(Outcome::Changed)
    );
    assert_eq!(gpu.phase, Phase::Probation);
    assert_eq!(
        change(&mut gpu, Event::ProbationPassed, 20),
        Err(ChangeRejected::TooEarly(minute(75)))
    );
    assert!(
        gpu.may_leave_probation(minute(20), true) && !gpu.may_leave_probation(minute(20), false)
    );
    assert_eq!(
        change(&mut gpu, Event::ProbationPassed, 75),
        Ok(Outcome::Changed)
    );
    assert_eq!((gpu.phase, gpu.since), (Phase::Healthy, minute(75)));
    let events: Vec<&str> = gpu.history.iter().map(|it| it.event.name()).collect();
    assert_eq!(
        events,
        [
            "block",
            "repair_began",
            "repair_done",
            "check_passed",
            "probation_passed"
        ]
    );
}

#[test]
fn a_repair_without_a_passed_check_never_readmits() {
    let mut gpu = play(&[
        (Event::Block, 0),
        (Event::RepairBegan, 1),
        (Event::RepairDone, 3),
    ]);
    assert_eq!(
        change(&mut gpu, Event::ProbationPassed, 100),
        Err(ChangeRejected::Illegal {
            from: Phase::Checking,
            event: Event::ProbationPassed
        })
    );
    assert_eq!(
        change(&mut gpu, Event::CheckFailed, 100),
        Ok(Outcome::Changed)
    );
    // The wait restarts.
    assert_eq!((gpu.phase, gpu.ready_at), (Phase::Blocked, minute(115)));
}

#[test]
fn waits_grow_and_after_the_fourth_strike_only_an_operator_unblocks() {
    let waits: Vec<u64> = (0..=6)
        .map(|strikes| RecoveryLimits::default().wait_ms(strikes) / MINUTE_MS)
        .collect();
    assert_eq!(waits, [0, 15, 60, 240, 960, 1_440, 1_440]);
    let probations: Vec<u64> = (1..=4)
        .map(|strikes| RecoveryLimits::default().probation_ms(strikes) / HOUR_MS)
        .collect();
    assert_eq!(probations, [1, 6, 24, 24]);
    let mut gpu = Condition::new(TimeMs(0));
    let mut at = 0;
    for strike in 1..=3 {
        change(&mut gpu, Event::Block, at).expect("legal");
        assert_eq!(gpu.strikes.at(minute(at)), strike);
        at += 24 * 60;
        for event in [Event::CheckBegan, Event::CheckPassed] {
            change(&mut gpu, event, at).expect("legal");
        }
        at += 24 * 60;
        change(&mut gpu, Event::ProbationPassed, at).expect("legal");
    }
    change(&mut gpu, Event::Block, at).expect("legal");
    for event in [Event::RepairBegan, Event::CheckBegan, Event::Clear] {
        assert_eq!(
            change(&mut gpu, event, at + 10_000),
            Err(ChangeRejected::ByHand(4))
        );
    }
    change(&mut gpu, Event::AdminUnblock, at + 10_000).expect("a person may");
    assert_eq!(gpu.phase, Phase::Healthy);
    // Strikes remain after a passed check and an admin's unblock, until 30 clean days.
    assert_eq!(gpu.strikes.at(minute(at + 10_000)), 4);
    let back_at = minute(at + 10_000);
    assert_eq!(gpu.strikes_at(back_at.after(30 * DAY_MS - 1)), 4);
    assert_eq!(gpu.strikes_at(back_at.after(30 * DAY_MS)), 0);
}

#[test]
fn repeated_failed_checks_back_off_and_their_days_do_not_count_as_clean() {
    let mut gpu = play(&[(Event::Block, 0)]);
    let mut at = gpu.ready_at;
    let mut waits = Vec::new();
    while at < TimeMs(40 * DAY_MS) {
        for event in [Event::CheckBegan, Event::CheckFailed] {
            change(&mut gpu, event, at.0 / MINUTE_MS).expect("legal");
        }
        waits.push(gpu.ready_at.since(at) / MINUTE_MS);
        at = gpu.ready_at;
    }
    assert_eq!(waits[..4], [15, 30, 60, 60]);
    assert!(waits[4..].iter().all(|wait| *wait == 60));
    assert_eq!(gpu.strikes_at(at), 1, "forty days are none in service");
    // Its days start when it is back.
    for event in [Event::CheckBegan, Event::CheckPassed] {
        change(&mut gpu, event, at.0 / MINUTE_MS).expect("legal");
    }
    assert_eq!(gpu.strikes_at(at.after(29 * DAY_MS)), 1);
    assert_eq!(gpu.strikes_at(at.after(30 * DAY_MS)), 0);
}

#[test]
fn a_failure_in_probation_counts_double() {
    let mut gpu = play(&[
        (Event::Block, 0),
        (Event::CheckBegan, 15),
        (Event::CheckPassed, 15),
    ]);
    change(&mut gpu, Event::ProbationFailed, 20).expect("legal");
    assert_eq!((gpu.phase, gpu.strikes.at(minute(20))), (Phase::Blocked, 3));
}

#[test]
fn an_incident_is_no_strike() {
    let mut host = Condition::new(TimeMs(0));
    let mut incident = by_rule(Event::Block, "mount_missing", minute(1));
    incident.is_strike = false;
    host.change(incident, RecoveryLimits::default())
        .expect("legal");
    assert_eq!(
        (host.phase, host.strikes.at(minute(1))),
        (Phase::Blocked, 0)
    );
    assert_eq!(host.ready_at, minute(1));
}

#[test]
fn a_drain_ends_by_itself_if_nothing_was_done() {
    let mut gpu = play(&[(Event::Drain, 0)]);
    assert!(!gpu.phase.accepts_work());
    change(&mut gpu, Event::Clear, 1).expect("legal");
    assert_eq!(gpu.phase, Phase::Healthy);
    let gpu = play(&[(Event::Drain, 0), (Event::Drained, 60)]);
    assert_eq!((gpu.phase, gpu.strikes.at(minute(60))), (Phase::Blocked, 1));
}

#[test]
fn an_admins_block_overrides_repairs_rules_and_checks() {
    let mut gpu = play(&[
        (Event::Block, 0),
        (Event::RepairBegan, 1),
        (Event::AdminBlock, 2),
    ]);
    for event in [
        Event::RepairDone,
        Event::CheckPassed,
        Event::Clear,
        Event::ProbationPassed,
    ] {
        assert_eq!(
            change(&mut gpu, event, 3),
            Err(ChangeRejected::Illegal {
                from: Phase::BlockedAdmin,
                event
            })
        );
    }
    // It is already blocked for that, once the admin's block is over.
    assert_eq!(change(&mut gpu, Event::Block, 4), Ok(Outcome::Known));
    assert_eq!(change(&mut gpu, Event::Condemn, 4), Ok(Outcome::Remembered));
    assert_eq!(gpu.phase, Phase::BlockedAdmin);
    // A rule that claims to be an admin, and the other way round.
    let mut forged = by_rule(Event::AdminUnblock, "ecc", minute(5));
    forged.actor = Actor::Rule("ecc".to_owned());
    assert_eq!(
        gpu.change(forged, RecoveryLimits::default()),
        Err(ChangeRejected::NotTheirs(Event::AdminUnblock))
    );
}

#[test]
fn an_admins_unblock_mutes_the_rule_for_a_day() {
    let mut gpu = play(&[(Event::Block, 0), (Event::AdminUnblock, 10)]);
    let until = minute(10).after(DAY_MS);
    let muted = ChangeRejected::Muted {
        rule: "ecc".to_owned(),
        until,
    };
    assert_eq!(change(&mut gpu, Event::Block, 11), Err(muted.clone()));
    assert_eq!(change(&mut gpu, Event::Suspect, 12), Err(muted));
    // Another rule still counts, and so does this one a day later.
    let other = by_rule(Event::Block, "xid", minute(13));
    assert_eq!(
        gpu.change(other, RecoveryLimits::default()),
        Ok(Outcome::Changed)
    );
    change(&mut gpu, Event::AdminUnblock, 14).expect("legal");
    assert_eq!(
        change(&mut gpu, Event::Block, 14 + 24 * 60),
        Ok(Outcome::Changed)
    );
}

#[test]
fn a_fault_found_under_an_admins_block_counts_when_that_expires() {
    let mut gpu = Condition::new(TimeMs(0));
    let mut block = by_rule(Event::AdminBlock, "", minute(0));
    block.expires_at = Some(minute(60));
    gpu.change(block.clone(), RecoveryLimits::default())
        .expect("legal");
    assert_eq!(change(&mut gpu, Event::Block, 5), Ok(Outcome::Remembered));
    assert_eq!(
        change(&mut gpu, Event::Expired, 59),
        Err(ChangeRejected::TooEarly(minute(60)))
    );
    assert_eq!(change(&mut gpu, Event::Expired, 60), Ok(Outcome::Changed));
    assert_eq!(
        (gpu.phase, gpu.since, gpu.pending.clone()),
        (Phase::Blocked, minute(60), None)
    );
    // Without a fault it is simply over; without an end it never is.
    let mut free = Condition::new(TimeMs(0));
    free.change(block, RecoveryLimits::default())
        .expect("legal");
    change(&mut free, Event::Expired, 60).expect("legal");
    assert_eq!(free.phase, Phase::Healthy);
    let mut kept = play(&[(Event::AdminBlock, 0)]);
    assert_eq!(
        change(&mut kept, Event::Expired, 60),
        Err(ChangeRejected::ByHand(0))
    );
}

/// Blocked by an admin for an hour from this minute.
fn block_for_an_hour(condition: &mut Condition, at: u64) {
    let mut block = by_rule(Event::AdminBlock, "", minute(at));
    block.expires_at = Some(minute(at + 60));
    condition
        .change(block, RecoveryLimits::default())
        .expect("a person may");
}

#[test]
fn the_worst_finding_made_under_an_admins_block_takes_effect_afterwards() {
    let mut gpu = Condition::new(TimeMs(0));
    block_for_an_hour(&mut gpu, 0);
    let mut find = |event, rule, by_hand| {
        let mut found = by_rule(event, rule, minute(5));
        found.by_hand = by_hand;
        gpu.change(found, RecoveryLimits::default())
    };
    let remembered = [
        (Event::Suspect, "temp_core", false),
        (Event::Drain, "ecc", false),
        (Event::Block, "xid", false),
        (Event::Block, "row_remap", true),
    ];
    for (event, rule, by_hand) in remembered {
        assert_eq!(find(event, rule, by_hand), Ok(Outcome::Remembered));
    }
    for (event, rule) in [(Event::Block, "xid"), (Event::Suspect, "temp_core")] {
        assert_eq!(find(event, rule, false), Ok(Outcome::Known));
    }
    change(&mut gpu, Event::Expired, 60).expect("legal");
    assert_eq!(gpu.phase, Phase::Blocked);
    assert_eq!(gpu.cause().map(|cause| &*cause.rule), Some("row_remap"));
    assert!(gpu.by_hand && gpu.needs_operator(minute(100_000)));
    assert_eq!((gpu.strikes_at(minute(60)), gpu.ready_at), (1, minute(75)));
}

#[test]
fn the_phase_before_an_admins_block_is_restored_afterwards() {
    use Event::{
        AdminCondemn, Block, CheckBegan, CheckPassed, Condemn, Drain, RepairBegan, Suspect,
    };
    let walks: [(&[Event], Phase, u32); 9] = [
        (&[], Phase::Healthy, 0),
        (&[Suspect], Phase::Suspect, 0),
        (&[Suspect, CheckBegan], Phase::Suspect, 0),
        (&[Drain], Phase::Draining, 0),
        (&[Block], Phase::Blocked, 1),
        (&[Block, RepairBegan], Phase::Blocked, 1),
        (&[Block, Condemn], Phase::Rma, 1),
        (&[AdminCondemn], Phase::Rma, 0),
        // A passed check is proof enough.
        (&[Block, CheckBegan, CheckPassed], Phase::Healthy, 1),
    ];
    for (walk, phase, strikes) in walks {
        let events: Vec<(Event, u64)> = walk
            .iter()
            .map(|event| (*event, 20))
            .zip(0..)
            .map(|((event, at), step)| (event, at * step))
            .collect();
        let mut gpu = play(&events);
        block_for_an_hour(&mut gpu, 100);
        change(&mut gpu, Event::Expired, 160).expect("legal");
        let found = (gpu.phase, gpu.strikes_at(minute(160)), gpu.pending.clone());
        assert_eq!(found, (phase, strikes, None), "{walk:?}");
    }
}

#[test]
fn a_second_fault_under_an_admins_block_adds_no_second_strike() {
    let mut gpu = play(&[(Event::Block, 0)]);
    block_for_an_hour(&mut gpu, 1);
    assert_eq!(change(&mut gpu, Event::Condemn, 2), Ok(Outcome::Remembered));
    change(&mut gpu, Event::Expired, 61).expect("legal");
    assert_eq!((gpu.phase, gpu.strikes_at(minute(61))), (Phase::Rma, 1));
}

#[test]
fn a_fault_cleared_only_by_hand_remains_so_after_an_admins_block() {
    let mut gpu = Condition::new(TimeMs(0));
    let mut fault = by_rule(Event::Block, "row_remap", minute(0));
    fault.by_hand = true;
    gpu.change(fault, RecoveryLimits::default()).expect("legal");
    block_for_an_hour(&mut gpu, 1);
    assert!(!gpu.by_hand, "it ends by itself");
    change(&mut gpu, Event::Expired, 61).expect("legal");
    assert!(gpu.by_hand);
}

#[test]
fn an_admins_unblock_clears_deferred_findings_and_mutes_their_rules() {
    let mut gpu = play(&[(Event::Block, 0)]);
    block_for_an_hour(&mut gpu, 1);
    let other = by_rule(Event::Condemn, "xid", minute(2));
    gpu.change(other, RecoveryLimits::default())
        .expect("it is kept");
    change(&mut gpu, Event::AdminUnblock, 3).expect("legal");
    assert_eq!((gpu.phase, gpu.pending.clone()), (Phase::Healthy, None));
    let mut muted: Vec<&str> = gpu.mutes.iter().map(|mute| &*mute.rule).collect();
    muted.sort_unstable();
    assert_eq!(muted, ["ecc", "xid"]);
}

#[test]
fn an_incident_withdraws_deferred_findings() {
    let mut gpu = Condition::new(TimeMs(0));
    block_for_an_hour(&mut gpu, 0);
    change(&mut gpu, Event::Block, 5).expect("it is kept");
    assert!(
        !gpu.withdraw("ecc", minute(5), RecoveryLimits::default()),
        "it stays the admin's"
    );
    change(&mut gpu, Event::Expired, 60).expect("legal");
    assert_eq!(gpu.phase, Phase::Healthy);
}

#[test]
fn a_repeated_event_changes_nothing() {
    let mut gpu = play(&[(Event::Block, 0), (Event::RepairBegan, 1)]);
    let before = gpu.clone();
    for event in [Event::Suspect, Event::Drain, Event::Block] {
        assert_eq!(change(&mut gpu, event, 2), Ok(Outcome::Known));
    }
    assert_eq!(gpu, before);
    assert_eq!(change(&mut gpu, Event::Condemn, 3), Ok(Outcome::Changed));
    assert_eq!(change(&mut gpu, Event::Block, 4), Ok(Outcome::Known));
    assert_eq!(gpu.phase, Phase::Rma);
}

/// The fault for which it is out of service is not forgotten, however often its check fails.
#[test]
fn checks_that_keep_failing_do_not_hide_the_fault() {
    let mut gpu = play(&[(Event::Suspect, 0), (Event::Block, 1)]);
    for round in 0..2 * HISTORY_MAX as u64 {
        let at = 10 + 2_000 * round;
        change(&mut gpu, Event::CheckBegan, at).expect("legal");
        change(&mut gpu, Event::CheckFailed, at + 1).expect("legal");
    }
    assert_eq!(gpu.history.len(), HISTORY_MAX);
    let fault = gpu.accusation().expect("it is known");
    assert_eq!((fault.event, fault.at), (Event::Block, minute(1)));
}

#[test]
fn the_history_of_a_component_is_bounded() {
    let mut gpu = Condition::new(TimeMs(0));
    for round in 0..100 {
        let rule = format!("rule{round}");
        gpu.change(
            by_rule(Event::Block, &rule, minute(round)),
            RecoveryLimits::default(),
        )
        .expect("legal");
        change(&mut gpu, Event::AdminUnblock, round).expect("legal");
    }
    assert_eq!(
        (gpu.history.len(), gpu.mutes.len()),
        (HISTORY_MAX, MUTES_MAX)
    );
}

#[test]
fn a_reboot_that_did_not_help_twice_is_not_tried_again() {
    let mut repairs = Repairs::default();
    let day = |days: u64| TimeMs(days * DAY_MS);
    let recovery_limits = RecoveryLimits {
        repairs_max: 5,
        ..RecoveryLimits::default()
    };
    let next = |repairs: &Repairs, now, wanted| repairs.next(now, wanted, recovery_limits);
    for at in [0, 1] {
        assert_eq!(
            next(&repairs, day(at), DeviceAction::Reboot),
            DeviceAction::Reboot
        );
        repairs.complete(day(at), DeviceAction::Reboot);
    }
    assert_eq!(
        next(&repairs, day(2), DeviceAction::Reboot),
        DeviceAction::Inspect
    );
    assert_eq!(
        next(&repairs, day(2), DeviceAction::Reset),
        DeviceAction::Reset
    );
    assert_eq!(
        next(&repairs, day(5), DeviceAction::Reboot),
        DeviceAction::Reboot
    );
    for _ in 0..3 {
        repairs.complete(day(5), DeviceAction::Reset);
    }
    assert_eq!(
        next(&repairs, day(5), DeviceAction::Reset),
        DeviceAction::Inspect
    );
    assert_eq!(next(&repairs, day(5), DeviceAction::Rma), DeviceAction::Rma);
    assert_eq!(
        next(&repairs, day(13), DeviceAction::Reset),
        DeviceAction::Reset
    );
    // Where no rule sets a limit, there is none.
    let unlimited = RecoveryLimits::default();
    assert_eq!(
        repairs.next(day(5), DeviceAction::Reset, unlimited),
        DeviceAction::Reset
    );
}

#[test]
fn probation_takes_only_work_that_can_be_lost() {
    let gang = PlacementRequest {
        is_gang: true,
        gpus_per_task: 8,
        is_preemptible: false,
        has_retry: true,
    };
    let small = PlacementRequest {
        is_gang: false,
        gpus_per_task: 1,
        ..gang
    };
    assert!(!Phase::Probation.takes(gang) && Phase::Probation.takes(small));
    assert!(Phase::Probation.takes(PlacementRequest {
        is_preemptible: true,
        ..gang
    }));
    assert!(!Phase::Probation.takes(PlacementRequest {
        has_retry: false,
        ..small
    }));
    for phase in Phase::ALL {
        assert_eq!(
            phase.takes(PlacementRequest {
                is_preemptible: true,
                ..small
            }),
            phase.accepts_work()
        );
    }
}

/// A generator of its own: the same walks on every machine.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// For any events in any order: a fault is left only by proof, an admin or the expiry of an admin's block; an
/// admin's decision holds; every block has a cause and a way out.
#[test]
fn random_sequences_of_events_keep_the_invariants() {
    for start in 0..2_000 {
        let mut seed = start;
        let mut gpu = Condition::new(TimeMs(0));
        let mut now = 0;
        let mut has_proof = true;
        for _ in 0..60 {
            let event = Event::ALL[draw(&mut seed) as usize % Event::ALL.len()];
            now += draw(&mut seed) % 200;
            let mut wanted = by_rule(
                event,
                ["ecc", "xid"][draw(&mut seed) as usize % 2],
                minute(now),
            );
            wanted.is_strike = !draw(&mut seed).is_multiple_of(4);
            if matches!(event, Event::AdminBlock | Event::AdminDrain)
                && draw(&mut seed).is_multiple_of(2)
            {
                wanted.expires_at = Some(minute(now + 100));
            }
            let mut before = gpu.clone();
            let outcome = gpu.change(wanted, RecoveryLimits::default());
            if outcome != Ok(Outcome::Changed) {
                if before.phase == Phase::Suspect && event == Event::Suspect {
                    // Other rules that suspect it are remembered.
                    before.suspected.clone_from(&gpu.suspected);
                }
                let is_remembered = outcome == Ok(Outcome::Remembered);
                assert!(gpu == before || is_remembered && gpu.phase == before.phase);
                continue;
            }
            if event == Event::Block {
                has_proof = false;
            }
            let by_person = event.is_admins() || event == Event::Expired;
            has_proof |= event == Event::CheckPassed || by_person;
            let context = format!("start {start}: {} {event} {}", before.phase, gpu.phase);
            if gpu.phase.accepts_work() && !before.phase.accepts_work() {
                let undone = before.phase == Phase::Draining;
                assert!(has_proof || undone, "{context}");
            }
            if before.phase.is_admins() && !gpu.phase.is_admins() {
                assert!(by_person, "{context}");
            }
            if gpu.phase != Phase::Healthy {
                let cause = gpu.cause().expect("it has one");
                assert!(!cause.evidence.is_empty(), "{context}");
            }
            let has_way_out = TRANSITIONS
                .iter()
                .any(|row| row.0 == gpu.phase && row.2 != gpu.phase);
            assert!(has_way_out, "{context}");
            assert!(gpu.history.len() <= HISTORY_MAX && gpu.mutes.len() <= MUTES_MAX);
        }
    }
}
