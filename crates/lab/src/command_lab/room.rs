//! Whether there is room for an experiment, before anything is made: on the disk, and in memory.

use anyhow::{Context, Result, bail};
use gannet_base::units::format_size;
use gannet_io::{Disk, RealDisk, RealOptions};
use gannet_lab::experiments::{Experiment, Needs};
use gannet_lab::folders;
use gannet_lab::machine;
use gannet_lab::record::{Order, Size};
use std::path::Path;

/// What there is; `None` where the system does not say.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Bytes that can be written where the run is to be, those that are a part of it already with them.
    disk: Option<u64>,
    /// Bytes of memory that nobody uses.
    memory: Option<u64>,
}

/// The name of a size on the command line.
pub(super) fn name(size: Size) -> &'static str {
    match size {
        Size::Quick => "quick",
        Size::Standard => "standard",
        Size::Large => "large",
    }
}

/// Fails where an experiment needs more disk or memory than there is, of which `data` is what it has made already.
pub(super) fn must_be_enough(
    experiment: &dyn Experiment,
    order: &Order,
    place: &Path,
    data: &Path,
) -> Result<()> {
    let made = if data.exists() { folders::bytes(data)? } else { 0 };
    let free = RealDisk::new(RealOptions::default()).free_bytes(place);
    let free = free.with_context(|| format!("cannot see how much room there is in {place:?}"))?;
    let room = Room { disk: free.map(|free| free + made), memory: machine::available_memory() };
    judge(|size| experiment.needs(&Order { size, ..order.clone() }), order.size, room)
}

/// Fails where a size needs more than there is, and names the largest one that does not.
fn judge(needs: impl Fn(Size) -> Needs, size: Size, room: Room) -> Result<()> {
    let lacks = |needs: Needs| -> Vec<String> {
        let each = [("of the disk", needs.disk, room.disk), ("of memory", needs.memory, room.memory)];
        each.into_iter()
            .filter_map(|(what, needs, there)| {
                let there = there.filter(|&there| there < needs)?;
                Some(format!("{} {what}, and there are {}", format_size(needs), format_size(there)))
            })
            .collect()
    };
    let lacking = lacks(needs(size));
    if lacking.is_empty() {
        return Ok(());
    }
    let smaller: &[Size] = match size {
        Size::Quick => &[],
        Size::Standard => &[Size::Quick],
        Size::Large => &[Size::Standard, Size::Quick],
    };
    let way = match smaller.iter().find(|&&size| lacks(needs(size)).is_empty()) {
        Some(&smaller) => format!("there is room for --size {}", name(smaller)),
        None => "no smaller size has room either: fewer rivals need less of the disk (--rivals), another disk may have more (--to)".to_owned(),
    };
    bail!("the size {} needs about {}: {way}", name(size), lacking.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_lab::experiments;
    use gannet_lab::throttle::AS_IS;

    #[test]
    fn what_has_no_room_is_refused_with_the_size_that_has() {
        let needs = |size| match size {
            Size::Quick => Needs { disk: 10 << 30, memory: 1 << 30 },
            Size::Standard => Needs { disk: 40 << 30, memory: 4 << 30 },
            Size::Large => Needs { disk: 200 << 30, memory: 16 << 30 },
        };
        let of = |size, disk: u64, memory: u64| {
            let room = Room { disk: Some(disk << 30), memory: Some(memory << 30) };
            judge(needs, size, room).map_err(|error| error.to_string())
        };
        of(Size::Large, 200, 16).unwrap();
        let error = of(Size::Large, 300, 8).unwrap_err();
        assert!(error.contains("large needs about 16") && error.contains("--size standard"), "{error}");
        let error = of(Size::Large, 20, 8).unwrap_err();
        assert!(error.contains("of the disk") && error.contains("of memory"), "{error}");
        assert!(error.contains("--size quick"), "{error}");
        assert!(of(Size::Quick, 5, 8).unwrap_err().contains("--rivals"));
        // What is not known is no reason.
        judge(needs, Size::Large, Room { disk: None, memory: None }).unwrap();
    }

    #[test]
    fn a_larger_size_needs_more_and_a_quick_one_little() {
        for experiment in experiments::all() {
            let of = |size, rivals: bool| {
                let rivals = experiment.rivals().iter().filter(|_| rivals);
                experiment.needs(&Order {
                    experiment: experiment.name().to_owned(),
                    size,
                    rivals: rivals.map(|rival| rival.name.to_owned()).collect(),
                    modes: experiment.usual_modes(size).iter().map(|&mode| mode.to_owned()).collect(),
                    profiles: vec![AS_IS.to_owned()],
                    repeat: 1,
                    seed: 1,
                })
            };
            let name = experiment.name();
            let sizes = [Size::Quick, Size::Standard, Size::Large].map(|size| of(size, true));
            assert!(
                sizes.windows(2).all(|two| two[0].disk < two[1].disk && two[0].memory < two[1].memory),
                "{name}"
            );
            let alone = of(Size::Quick, false);
            assert!(alone.disk <= 6 << 30 && alone.disk >= 100 << 20, "{name}: {alone:?}");
            assert!(alone.memory <= 2 << 30, "{name}: {alone:?}");
        }
    }
}
