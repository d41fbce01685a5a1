//! What a figure depends on besides what was asked for: the build, the machine, what the system lets us do, and which version of a rival it was.
//!
//! A run keeps them with each of its steps ([`crate::record`]), as it may be interrupted, and go on elsewhere or under something else. Figures of two builds do not belong into
//! one report: whoever goes on with a run has to ask for that.

use crate::confine::{Group, has_swap};
use crate::machine;
use crate::servers;
use gannet_base::units::format_size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a group that is made to see whether there can be one.
const PROBE: u64 = 64 << 20;

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Circumstances {
    /// Version and commit of the laboratory.
    pub lab: String,
    /// What Gannet's program, which is started as a server, says of its own; `None` where there is none.
    pub gannet: Option<String>,
    /// Processors and memory.
    pub machine: String,
    /// Of Linux.
    pub kernel: String,
    /// Whether there is any swap.
    pub has_swap: bool,
    /// Whether memory cgroups can be made.
    pub has_groups: bool,
    /// Name and version of the rival that it is about.
    #[serde(default)]
    pub rival: Option<(String, String)>,
}

/// The laboratory's version and commit.
pub fn build() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), machine::COMMIT)
}

impl Circumstances {
    /// As they are now.
    pub fn now() -> Self {
        let found = machine::describe();
        let text = |name: &str| found[name].as_str().unwrap_or("unknown").to_owned();
        let memory = found["memory_bytes"].as_u64().map_or_else(|| "unknown".to_owned(), format_size);
        Circumstances {
            lab: build(),
            gannet: servers::gannet_version(),
            machine: format!("{} processors ({}), {memory} of memory", found["cpus"], text("cpu")),
            kernel: text("kernel"),
            has_swap: has_swap(),
            has_groups: Group::new(PROBE).is_some(),
            rival: None,
        }
    }

    /// What programs are measured, as people read it.
    pub fn programs(&self) -> String {
        match &self.gannet {
            Some(gannet) => format!("lab {} with {gannet}", self.lab),
            None => format!("lab {}", self.lab),
        }
    }

    /// In what else they differ from those of before, as people read it.
    pub fn differences(&self, then: &Self) -> Vec<String> {
        let on = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let can = |can: bool| if can { "can be made" } else { "cannot be made" }.to_owned();
        let each = [
            ("the machine", then.machine.clone(), self.machine.clone()),
            ("the kernel", then.kernel.clone(), self.kernel.clone()),
            ("swap", on(then.has_swap), on(self.has_swap)),
            ("memory cgroups", can(then.has_groups), can(self.has_groups)),
        ];
        let differ = each.into_iter().filter(|(_, before, now)| before != now);
        differ.map(|(what, before, now)| format!("{what}: {before} then, {now} now")).collect()
    }
}

/// What steps of one run do not have in common, each as a sentence: their number is told for each of what there was.
pub fn mixed<'a>(steps: impl Iterator<Item = &'a Circumstances>) -> Vec<String> {
    let steps: Vec<_> = steps.collect();
    let mut told = Vec::new();
    let mut judge = |what: &str, of: &dyn Fn(&Circumstances) -> String| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        steps.iter().for_each(|one| *counts.entry(of(one)).or_default() += 1);
        if counts.len() > 1 {
            let each: Vec<String> = counts.iter().map(|(value, count)| format!("{count} {value}")).collect();
            told.push(format!("Not all steps had the same {what}: {}.", each.join("; ")));
        }
    };
    judge("programs, so figures beside each other may be of different ones", &|one| {
        format!("by {}", one.programs())
    });
    judge("machine", &|one| format!("on {}", one.machine));
    judge("kernel", &|one| format!("on Linux {}", one.kernel));
    judge("swap", &|one| format!("with swap {}", if one.has_swap { "on" } else { "off" }));
    let without = steps.iter().filter(|one| !one.has_groups).count();
    if without > 0 && without < steps.len() {
        told.push(format!(
            "{without} of {} steps had no memory cgroup, as none could be made then: nobody was held to the limit in them but by its own settings.",
            steps.len()
        ));
    }
    for (rival, versions) in rivals(steps.iter().copied()) {
        if versions.len() > 1 {
            told.push(format!("Not all steps of {rival} had the same version: {}.", versions.join("; ")));
        }
    }
    told
}

/// The versions of each rival that there were.
pub fn rivals<'a>(steps: impl Iterator<Item = &'a Circumstances>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut all: BTreeMap<&'a str, Vec<&'a str>> = BTreeMap::new();
    for (rival, version) in steps.filter_map(|one| one.rival.as_ref()) {
        let versions = all.entry(rival).or_default();
        if !versions.contains(&&**version) {
            versions.push(version);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Circumstances {
        Circumstances {
            lab: "1 (abc)".to_owned(),
            machine: "2 processors".to_owned(),
            has_groups: true,
            ..Circumstances::default()
        }
    }

    #[test]
    fn what_steps_do_not_have_in_common_is_told_with_their_number() {
        let (old, new) = (usual(), Circumstances { lab: "1 (def)".to_owned(), has_swap: true, ..usual() });
        let told = mixed([&old, &old, &new].into_iter()).join("\n");
        assert!(told.contains("2 by lab 1 (abc); 1 by lab 1 (def)"), "{told}");
        assert!(told.contains("2 with swap off; 1 with swap on") && !told.contains("cgroup"), "{told}");
        assert!(mixed([&old, &old].into_iter()).is_empty());
        let without = Circumstances { has_groups: false, ..usual() };
        let told = mixed([&old, &without, &old].into_iter()).join("\n");
        assert!(told.starts_with("1 of 3 steps had no memory cgroup"), "{told}");
        let of =
            |version: &str| Circumstances { rival: Some(("lmdb".to_owned(), version.to_owned())), ..usual() };
        let [one, other] = ["lmdb 0.9.24", "lmdb 0.9.31"].map(of);
        let told = mixed([&one, &other, &old].into_iter()).join("\n");
        assert!(told.contains("of lmdb") && told.contains("lmdb 0.9.24; lmdb 0.9.31"), "{told}");
    }

    #[test]
    fn what_differs_from_before_is_named_with_both() {
        let now = Circumstances { has_swap: true, has_groups: false, ..usual() };
        let told = now.differences(&usual());
        assert_eq!(told, ["swap: off then, on now", "memory cgroups: can be made then, cannot be made now"]);
        assert!(usual().differences(&usual()).is_empty());
    }
}
