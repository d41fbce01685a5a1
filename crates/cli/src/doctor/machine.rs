//! What of the machine's figures is worth a remark: memory, swap, pressure, and how long a write takes to be durable. Each remark has the
//! figure it goes by, what comes of it, and what to change.

use super::{Remarks, Weight};
use gannet_base::units::format_size;
use gannet_io::{Memory, Pressure};
use std::time::Duration;

/// No device makes a write durable that fast without a cache of its own.
const IMPLAUSIBLE: Duration = Duration::from_micros(20);
/// A write that takes longer to be durable than this is slow for any device but one with a moving arm.
const SLOW_WRITE: Duration = Duration::from_millis(10);
/// Time in which somebody, and everybody, waited for memory, in percent.
const MEMORY_SOME: f64 = 10.0;
const MEMORY_FULL: f64 = 5.0;
/// Time in which everybody waited for devices, in percent.
const IO_FULL: f64 = 20.0;
/// Above it the kernel swaps while there are pages of files that it could drop.
const SWAPPINESS_MOST: u64 = 10;
/// A control group that uses more of its limit than so many percent has hardly anything left.
const GROUP_NEARLY_FULL: u64 = 90;

/// What the machine is short of, or may be. `pressure` is that of before anything was measured here.
pub(super) fn note_machine(memory: &Memory, pressure: &Pressure, remarks: &mut Remarks) {
    note_pressure(pressure, remarks);
    note_swap(memory, pressure.swappiness, remarks);
    note_group(memory, remarks);
}

fn note_pressure(pressure: &Pressure, remarks: &mut Remarks) {
    if let Some((some, full)) =
        pressure.memory.filter(|(some, full)| *some >= MEMORY_SOME || *full >= MEMORY_FULL)
    {
        let weight = if full >= MEMORY_FULL { Weight::Critical } else { Weight::Warning };
        let remark = format!(
            "memory is short: in {some:.1} % of the last ten seconds somebody waited for it, in {full:.1} % everybody"
        );
        remarks.add(weight, remark);
    }
    if let Some((_, full)) = pressure.io.filter(|(_, full)| *full >= IO_FULL) {
        let remark = format!(
            "devices are short: in {full:.1} % of the last ten seconds everybody who had something to do waited for one; find out who \
             reads and writes, give the database more memory, or a device to itself"
        );
        remarks.add(Weight::Warning, remark);
    }
}

fn note_swap(memory: &Memory, swappiness: Option<u64>, remarks: &mut Remarks) {
    let Some(total) = memory.swap_total.filter(|total| *total > 0) else { return };
    if let Some(free) = memory.swap_free.filter(|free| *free < total / 2) {
        let used = format_size(total.saturating_sub(free));
        remarks.add(Weight::Warning, format!("{used} of {} of swap space are used", format_size(total)));
    }
    // A group that may not swap keeps what it has, whatever the machine does.
    let may_swap = memory.cgroup_swap_limit != Some(0);
    if let Some(swappiness) = swappiness.filter(|swappiness| *swappiness > SWAPPINESS_MOST && may_swap) {
        let remark = format!(
            "vm.swappiness is {swappiness}, and there are {} of swap space: memory of the database may be swapped out to keep pages of \
             files cached, and each of its pages is waited for when it is needed; set vm.swappiness to {SWAPPINESS_MOST} or less (sysctl)",
            format_size(total)
        );
        remarks.add(Weight::Note, remark);
    }
}

fn note_group(memory: &Memory, remarks: &mut Remarks) {
    let (Some(limit), Some(used)) = (memory.cgroup_limit, memory.cgroup_used) else { return };
    // What the kernel takes back before anything else is as good as free.
    let used = used.saturating_sub(memory.cgroup_cached.unwrap_or(0));
    if used < limit / 100 * GROUP_NEARLY_FULL {
        return;
    }
    let remark = format!(
        "the control group uses {} of its {}, without files that are cached and not in use: where nothing is left, the kernel ends a \
         process of it; give the group a higher limit, or the database a smaller budget (--memory)",
        format_size(used),
        format_size(limit)
    );
    remarks.add(Weight::Warning, remark);
}

/// A default budget that is much of the memory there is, where nobody has the database open by another one.
pub(super) fn note_budget(memory: &Memory, default_budget: u64, is_served: bool, remarks: &mut Remarks) {
    let limit = memory.limit().filter(|limit| !is_served && *limit < 2 * default_budget);
    let Some(limit) = limit else { return };
    let remark = format!(
        "the default budget of {} is more than half of the {} there are: give --memory",
        format_size(default_budget),
        format_size(limit)
    );
    remarks.add(Weight::Note, remark);
}

/// How long a write takes to be durable: too short a time to be true, or one that everybody feels who commits.
pub(super) fn note_durable_write(latency: Duration, remarks: &mut Remarks) {
    if latency < IMPLAUSIBLE {
        let remark = format!(
            "a write is said to be durable after {} µs: a cache in front of the device says so, and has to survive a power cut",
            latency.as_micros()
        );
        remarks.add(Weight::Note, remark);
    } else if latency > SLOW_WRITE {
        let remark = format!(
            "a write is durable after {:.1} ms only: each lone commit takes that, and only those at the same time share it; take a device \
             that is faster at it, commit more at a time, or set synchronous_commit to off where the last commits may be lost",
            latency.as_secs_f64() * 1000.0
        );
        remarks.add(Weight::Warning, remark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn noted(note: impl FnOnce(&mut Remarks)) -> Vec<(Weight, String)> {
        let mut remarks = Remarks::default();
        note(&mut remarks);
        remarks.0
    }

    /// That there is one remark, of that weight and with those words.
    #[track_caller]
    fn one(found: &[(Weight, String)], weight: Weight, words: &[&str]) {
        let [(found, remark)] = found else { panic!("{found:?}") };
        assert_eq!(*found, weight, "{remark}");
        words.iter().for_each(|words| assert!(remark.contains(words), "{words}: {remark}"));
    }

    #[test]
    fn waiting_for_devices_is_a_warning_from_a_fifth_of_the_time_on() {
        let of = |io| noted(|remarks| note_pressure(&Pressure { io, ..Pressure::default() }, remarks));
        assert!(of(None).is_empty() && of(Some((95.0, 19.9))).is_empty());
        one(&of(Some((95.0, 20.0))), Weight::Warning, &["in 20.0 % of the last ten seconds", "more memory"]);
    }

    #[test]
    fn waiting_for_memory_is_a_warning_and_critical_where_everybody_does() {
        let of =
            |memory| noted(|remarks| note_pressure(&Pressure { memory, ..Pressure::default() }, remarks));
        assert!(of(None).is_empty() && of(Some((9.9, 4.9))).is_empty());
        one(&of(Some((10.0, 0.0))), Weight::Warning, &["memory is short: in 10.0 %"]);
        one(&of(Some((10.0, 5.0))), Weight::Critical, &["in 5.0 % everybody"]);
    }

    #[test]
    fn swappiness_is_noted_where_there_is_something_to_swap_to() {
        let of = |swap_total, cgroup_swap_limit, swappiness| {
            let swap_free = swap_total;
            let memory = Memory { swap_total, swap_free, cgroup_swap_limit, ..Memory::default() };
            noted(|remarks| note_swap(&memory, swappiness, remarks))
        };
        assert!(of(None, None, Some(60)).is_empty() && of(Some(0), None, Some(60)).is_empty());
        assert!(of(Some(GIB), None, Some(10)).is_empty() && of(Some(GIB), None, None).is_empty());
        assert!(of(Some(GIB), Some(0), Some(60)).is_empty(), "this group does not swap");
        one(
            &of(Some(GIB), None, Some(60)),
            Weight::Note,
            &["vm.swappiness is 60", "1GiB of swap space", "to 10 or less"],
        );
    }

    #[test]
    fn swap_space_that_is_used_is_a_warning() {
        let of = |swap_free| {
            let memory = Memory { swap_total: Some(4 * GIB), swap_free, ..Memory::default() };
            noted(|remarks| note_swap(&memory, Some(10), remarks))
        };
        assert!(of(Some(2 * GIB)).is_empty() && of(None).is_empty());
        one(&of(Some(GIB)), Weight::Warning, &["3GiB of 4GiB of swap space are used"]);
    }

    #[test]
    fn a_group_is_nearly_full_without_what_is_only_cached() {
        let of = |cgroup_limit, cgroup_used, cgroup_cached| {
            let memory = Memory { cgroup_limit, cgroup_used, cgroup_cached, ..Memory::default() };
            noted(|remarks| note_group(&memory, remarks))
        };
        assert!(of(None, Some(GIB), None).is_empty() && of(Some(GIB), None, None).is_empty());
        assert!(of(Some(100 * GIB), Some(89 * GIB), None).is_empty());
        assert!(of(Some(100 * GIB), Some(99 * GIB), Some(10 * GIB)).is_empty());
        let words = ["uses 90GiB of its 100GiB", "a higher limit", "--memory"];
        one(&of(Some(100 * GIB), Some(90 * GIB), None), Weight::Warning, &words);
        one(&of(Some(100 * GIB), Some(99 * GIB), Some(9 * GIB)), Weight::Warning, &words);
    }

    #[test]
    fn the_default_budget_is_no_matter_where_a_server_has_its_own() {
        let of = |total, is_served| {
            let memory = Memory { total: Some(total), ..Memory::default() };
            noted(|remarks| note_budget(&memory, GIB, is_served, remarks))
        };
        assert!(of(2 * GIB, false).is_empty());
        one(&of(GIB, false), Weight::Note, &["the default budget of 1GiB", "give --memory"]);
        assert!(of(GIB, true).is_empty());
    }

    #[test]
    fn durable_writes_are_too_fast_to_be_true_or_slow() {
        let of = |micros| noted(|remarks| note_durable_write(Duration::from_micros(micros), remarks));
        one(&of(19), Weight::Note, &["durable after 19 µs", "power cut"]);
        assert!(of(20).is_empty() && of(10_000).is_empty());
        one(
            &of(12_340),
            Weight::Warning,
            &["after 12.3 ms", "each lone commit takes that", "synchronous_commit"],
        );
    }
}
