use super::*;
use crate::Durability;

fn scheduler(depth: usize, prefetch: usize) -> (Scheduler<u32>, Arc<Shared>) {
    let shared = Arc::new(Shared::new(prefetch));
    (Scheduler::new(depth, Arc::clone(&shared)), shared)
}

fn fill(scheduler: &mut Scheduler<u32>, class: Class, jobs: u32) {
    (0..jobs).for_each(|job| scheduler.push(class, job));
}

fn drain(scheduler: &mut Scheduler<u32>) -> usize {
    let next = || {
        let is_ready = scheduler.has_ready();
        let next = scheduler.next();
        assert_eq!(next.is_some(), is_ready);
        next
    };
    std::iter::from_fn(next).count()
}

#[test]
fn prefetch_stops_at_its_depth_and_goes_on_as_requests_end() {
    let (mut scheduler, shared) = scheduler(128, 10);
    fill(&mut scheduler, Class::Prefetch, 30);
    assert_eq!(drain(&mut scheduler), 10);
    scheduler.finished(Class::Prefetch);
    assert_eq!(drain(&mut scheduler), 1);
    assert_eq!(shared.admission.at_device(Class::Prefetch), 10);
    // The foreground is not held up by it.
    fill(&mut scheduler, Class::Foreground, 5);
    assert_eq!(drain(&mut scheduler), 5);
}

#[test]
fn a_queue_progresses_even_when_another_holds_the_whole_cap() {
    let (mut greedy, shared) = scheduler(128, 4);
    fill(&mut greedy, Class::Prefetch, 4);
    assert_eq!(drain(&mut greedy), 4);
    let mut other = Scheduler::new(128, shared);
    fill(&mut other, Class::Prefetch, 3);
    for _ in 0..3 {
        assert_eq!(drain(&mut other), 1);
        other.finished(Class::Prefetch);
    }
}

#[test]
fn strong_classes_go_first_and_have_places_of_their_own() {
    let (mut scheduler, _) = scheduler(8, 64);
    fill(&mut scheduler, Class::Prefetch, 20);
    assert_eq!(drain(&mut scheduler), 8);
    scheduler.push(Class::Maintenance, 1000);
    scheduler.push(Class::Commit, 2000);
    let order: Vec<u32> = std::iter::from_fn(|| scheduler.next()).map(|(job, _)| job).collect();
    assert_eq!(order, [2000, 1000]);
}

#[test]
fn a_caller_that_takes_one_job_at_a_time_still_sees_maintenance() {
    let (mut scheduler, _) = scheduler(64, 64);
    fill(&mut scheduler, Class::Maintenance, 1);
    let mut taken = 0;
    loop {
        scheduler.push(Class::Foreground, 0);
        let (_, _) = scheduler.next().unwrap();
        taken += 1;
        assert!(taken <= 16, "maintenance starved");
        if scheduler.in_flight[Class::Maintenance as usize] == 1 {
            return;
        }
        scheduler.finished(Class::Foreground);
    }
}

#[test]
fn maintenance_is_paced_by_the_latency_of_the_foreground_but_never_stopped() {
    let shared = Shared::new(64);
    let settle = |class, latency: Duration| {
        let now = clock::now();
        let dispatched = Instant::from_nanos(now.as_nanos() - latency.as_nanos() as u64);
        let done = Settled {
            class,
            direction: Direction::Read,
            bytes: 8192,
            submitted: dispatched,
            dispatched,
            depth: 2,
        };
        shared.admission.learn(&done, now);
        now
    };
    let idle = Duration::from_micros(100);
    shared.admission.calibrate(&Calibration { read_latency: Some(idle), ..Calibration::default() });
    assert_eq!(shared.admission.maintenance_cap(clock::now()), MAINTENANCE_MAX);
    let now = settle(Class::Foreground, idle);
    assert_eq!(shared.admission.maintenance_cap(now), MAINTENANCE_MAX);
    (0..100).for_each(|_| {
        settle(Class::Foreground, idle * 4);
    });
    let now = settle(Class::Foreground, idle * 4);
    assert!((2..MAINTENANCE_MAX).contains(&shared.admission.maintenance_cap(now)));
    (0..100).for_each(|_| {
        settle(Class::Foreground, idle * 50);
    });
    let now = settle(Class::Foreground, idle * 50);
    assert_eq!(shared.admission.maintenance_cap(now), 1);
    assert_eq!(shared.admission.maintenance_cap(now + Duration::from_secs(1)), MAINTENANCE_MAX);
    let durable = Direction::Write(Durability::Durable);
    shared.admission.learn(
        &Settled {
            class: Class::Commit,
            direction: durable,
            bytes: 512,
            submitted: now,
            dispatched: now,
            depth: 1,
        },
        now + idle,
    );
    assert_eq!(shared.admission.calibration().sync_write_latency, Some(idle));
}
