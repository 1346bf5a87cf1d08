//! Thresholds of rules evaluated by the state itself, and of the guard rails.

use super::*;

fn site(table: &str, from: &str, to: &str) -> Site {
    let mut site = Site::new();
    site.rules = RuleSet::edited(table, from, to);
    site.health.adopt_rules(&site.rules);
    site
}

#[test]
fn the_rule_sets_after_how_many_page_faults_a_gpu_is_blocked() {
    let play = |from: &str, to: &str| {
        let mut site = site("xid31_same_gpu", from, to);
        let users = ["ann", "bob", "eve"];
        let output = (1..).zip(users).map(|(job, user)| {
            site.job = Some((job, user));
            site.xid(31, gpu(1, 0), job * 2 * HOUR_MS)
        });
        output.collect::<Vec<_>>().join("; ")
    };
    let three = play("2 in 24h", "3 in 24h");
    assert_eq!(three, "; ; g1.0 blocked(auto), check g1.0");
    assert_eq!(play("2 in 24h", "2 in 1h"), "; ; ");
    let drained = play("fatal_block = \"gpu\"", "fatal_block = \"gpu_at_task_end\"");
    assert_eq!(drained, "; g1.0 draining, check g1.0; ");
}

#[test]
fn the_rule_sets_how_many_repairs_are_too_many() {
    let play = |from: &str, to: &str| {
        let mut site = site("remediations", from, to);
        for at in 0..5 {
            let now = TimeMs(at * HOUR_MS);
            site.health.repaired(&gpu(1, 0), DeviceAction::Reset, now);
        }
        site.reading("ecc_unc_volatile", gpu(1, 0), Severity::Fatal, DAY_MS)
    };
    let repaired = "g1.0 blocked(auto), kill g1.0, reset g1.0";
    assert_eq!(play("5 in 7d", "6 in 7d"), repaired);
    assert_eq!(play("5 in 7d", "5 in 3h"), repaired);
    let looked_at = "g1.0 blocked(auto), kill g1.0, alert g1.0";
    assert_eq!(play("5 in 7d", "3 in 7d"), looked_at);
}

#[test]
fn the_head_of_the_file_sets_how_many_reboots_are_too_many() {
    let play = |head: &str| {
        let mut site = Site::new();
        let text = RuleSet::SHIPPED_TEXT.replacen("reboots_max = 2", head, 1);
        site.rules = RuleSet::parse(&text).expect("it parses");
        site.health.adopt_rules(&site.rules);
        for at in 0..2 {
            let now = TimeMs(at * HOUR_MS);
            site.health.repaired(&host(1), DeviceAction::Reboot, now);
        }
        site.reading("gpu_lost", gpu(1, 0), Severity::Fatal, DAY_MS)
    };
    let looked_at = "h1 blocked(auto), kill h1, alert h1";
    assert_eq!(play("reboots_max = 2"), looked_at);
    let rebooted = "h1 blocked(auto), kill h1, reboot h1";
    assert_eq!(play("reboots_max = 3"), rebooted);
}

/// A host on which every fourth of 40 tasks fails, among 99 that fail rarely.
fn fleet(site: &mut Site) -> TimeMs {
    for of in 0..100u32 {
        for task in 0..40u32 {
            let now = TimeMs(u64::from(task) * 61 * SECOND_MS);
            site.health.started(HostId(of), now);
            if of == 7 && task.is_multiple_of(4) {
                let on = FailedEnd {
                    at: now,
                    gpus: Vec::new(),
                    ..end(1, "ann", of, 0)
                };
                open_end(site, &on);
            }
        }
    }
    TimeMs(HOUR_MS)
}

#[test]
fn a_host_is_a_lemon_from_the_score_in_the_rule_on() {
    let play = |from: &str, to: &str| {
        let mut site = site("lemon", from, to);
        let now = fleet(&mut site);
        let rules = site.rules.clone();
        let lemons = site.health.lemons(&rules, now, &Excludes::new()).len();
        let output = site.with_place(7, |health, rules, place| {
            describe(&health.drain_lemon(rules, HostId(7), place, &Excludes::new(), now))
        });
        (lemons, output)
    };
    let ((none, nothing), (one, drained)) = (
        play("score_milli >= 3000", "score_milli >= 3001"),
        play("score_milli >= 3000", "score_milli >= 2500"),
    );
    assert_eq!((none, nothing.as_str()), (0, ""));
    assert_eq!((one, drained.as_str()), (1, "h7 draining, check h7"));
    let (_, alert_only) = play("fatal_block = \"host_at_task_end\"\n", "");
    assert_eq!(alert_only, "alert h7");
}

#[test]
fn the_rule_sets_when_a_host_is_flapping() {
    let play = |from: &str, to: &str| {
        let mut site = site("flapping", from, to);
        let output = [0, 8].map(|minute| {
            site.with_place(1, |health, rules, place| {
                let now = TimeMs(minute * MINUTE_MS);
                describe(&health.fell_silent(rules, place.host, &[], now))
            })
        });
        let condition = site.health.condition(&host(1));
        let restrictions = condition.and_then(|it| it.holds.first().map(|held| held.what));
        (output.join("; "), restrictions)
    };
    assert_eq!(play("3 in 10m", "4 in 10m"), ("; ".to_owned(), None));
    assert_eq!(play("3 in 10m", "2 in 7m"), ("; ".to_owned(), None));
    let held = "; held h1".to_owned();
    let gangs = (held.clone(), Some(muster_model::health::Hold::Gangs));
    assert_eq!(play("3 in 10m", "2 in 10m"), gangs);
    let mut site = site("flapping", "3 in 10m", "2 in 10m");
    for rule in &mut site.rules.rules {
        if rule.id == "flapping" {
            rule.degraded.actions = vec![muster_model::health::Action::NoNewTask];
        }
    }
    for minute in [0, 8] {
        site.with_place(1, |health, rules, place| {
            let now = TimeMs(minute * MINUTE_MS);
            health.fell_silent(rules, place.host, &[], now)
        });
    }
    let kept = site.health.condition(&host(1)).expect("it is known").held();
    let everything = Some(muster_model::health::Hold::Everything);
    assert_eq!(kept.map(|held| held.what), everything);
}

#[test]
fn the_file_sets_the_limits_of_the_guard_rails() {
    let blocked = |from: &str, to: &str| {
        let mut site = site("rails", from, to);
        for of in 0..60 {
            for index in 0..8 {
                let at = u64::from(of) * 90 * SECOND_MS / 8;
                let found = site.reading("xid31_same_gpu", gpu(of, index), Severity::Fatal, at);
                site.view.gpus_blocked_soft += u32::from(found.contains("blocked"));
            }
        }
        site.view.gpus_blocked_soft
    };
    assert_eq!(
        blocked("soft_hour_permille = 50", "soft_hour_permille = 80"),
        64
    );
    let outstanding = "soft_outstanding_permille = 30";
    assert_eq!(blocked("soft_outstanding_permille = 100", outstanding), 24);
    assert_eq!(blocked("hosts_always = 2", "hosts_always = 8"), 64);
}

#[test]
fn jobs_and_tenants_have_the_budgets_of_the_file() {
    let blocked = |from: &str, to: &str, job_of: fn(u32) -> u64| {
        let mut site = site("rails", from, to);
        let mut blocked = 0;
        for round in 0..6u32 {
            let job = job_of(round);
            site.job = Some((job, "eve"));
            open_end(&mut site, &end(100, "ann", round, u64::from(round)));
            let on = end(job, "eve", round, u64::from(round));
            let found = found(Class::Gpu, gpu(round, 0), Measure::BlockForCheck);
            let effects = site.with_place(round, |health, rules, place| {
                describe(&health.ended(rules, &found, &on, place))
            });
            blocked += u32::from(effects.contains("blocked"));
        }
        blocked
    };
    assert_eq!(blocked("per_tenant = 3", "per_tenant = 5", u64::from), 5);
    assert_eq!(blocked("per_job = 2", "per_job = 1", |_| 1), 1);
    assert_eq!(blocked("users_min = 2", "users_min = 3", u64::from), 0);
}

#[test]
fn the_file_sets_the_wait_of_a_breaker_also_when_it_is_set_again() {
    let mut site = Site::new();
    for of in 0..10 {
        for index in 0..8 {
            site.reading("xid31_same_gpu", gpu(of, index), Severity::Fatal, 0);
        }
    }
    let is_tripped = |site: &Site| site.health.rails().tripped().count() == 1;
    site.health.tick(TimeMs(MINUTE_MS + 1));
    assert!(is_tripped(&site));
    site.rules = RuleSet::edited("rails", "breaker_s = 1800", "breaker_s = 60");
    site.health.adopt_rules(&site.rules);
    let output = describe(&site.health.tick(TimeMs(MINUTE_MS + 1)));
    assert_eq!((output.as_str(), is_tripped(&site)), ("closed all", false));
}
