//! What this machine and its control group leave a process of memory, as the kernel tells it.

use std::path::{Path, PathBuf};

/// Bytes; `None` where the kernel does not tell, or sets no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Of the machine.
    pub total: Option<u64>,
    /// Of it, what can be had without swapping.
    pub available: Option<u64>,
    /// Swap space of the machine.
    pub swap_total: Option<u64>,
    /// Of it, what is not used.
    pub swap_free: Option<u64>,
    /// The limit of that control group around the process which has used most of its own.
    pub cgroup_limit: Option<u64>,
    /// What is used of it.
    pub cgroup_used: Option<u64>,
    /// Of it, cached files that are not in use: what the kernel takes back first.
    pub cgroup_cached: Option<u64>,
    /// The least limit of all these groups; `None` where only the tightest one is known.
    pub cgroup_least: Option<u64>,
    /// The least limit of swap space.
    pub cgroup_swap_limit: Option<u64>,
}

/// A control group that has a limit: it, what is used, and what of that is cached files that are not in use.
#[derive(Clone, Copy, Debug)]
struct Group {
    limit: u64,
    used: Option<u64>,
    cached: Option<u64>,
}

impl Group {
    /// Which part of it is used and cannot be had back at once.
    fn fill(&self) -> f64 {
        let used = self.used.unwrap_or(0).saturating_sub(self.cached.unwrap_or(0));
        used as f64 / self.limit.max(1) as f64
    }
}

impl Memory {
    /// What holds for this process now.
    pub fn of_this_machine() -> Self {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let mut memory = Memory::from_meminfo(&text);
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        memory.add_cgroup(&groups, Path::new("/sys/fs/cgroup"));
        memory
    }

    fn from_meminfo(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Memory {
            total: field("MemTotal"),
            available: field("MemAvailable"),
            swap_total: field("SwapTotal"),
            swap_free: field("SwapFree"),
            ..Memory::default()
        }
    }

    /// Notes what is used of a group, of which others may use more than this process.
    fn add_group(&mut self, tightest: &mut Option<Group>, group: Group) {
        self.cgroup_least = least(self.cgroup_least, Some(group.limit));
        // Of equal ones the narrowest limit.
        let rank = |group: &Group| (group.fill(), std::cmp::Reverse(group.limit));
        if tightest.as_ref().is_none_or(|before| rank(&group) > rank(before)) {
            *tightest = Some(group);
        }
    }

    /// Reads limits and use of the group this process is in and of all groups around it.
    fn add_cgroup(&mut self, groups: &str, root: &Path) {
        let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let cached = |folder: &Path, field: &str| {
            let text = std::fs::read_to_string(folder.join("memory.stat")).ok()?;
            text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse::<u64>().ok())
        };
        let mut tightest = None;
        if let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::")) {
            for folder in Path::new(path.trim_start_matches('/')).ancestors().map(|part| root.join(part)) {
                self.cgroup_swap_limit =
                    least(self.cgroup_swap_limit, number(folder.join("memory.swap.max")));
                if let Some(limit) = number(folder.join("memory.max")) {
                    let used = number(folder.join("memory.current"));
                    let cached = used.and_then(|_| cached(&folder, "inactive_file "));
                    self.add_group(&mut tightest, Group { limit, used, cached });
                }
            }
        }
        let first_version = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers
                .split(',')
                .any(|name| name == "memory")
                .then(|| path.trim_start_matches('/').to_owned())
        };
        if let Some(path) = groups.lines().find_map(first_version) {
            for folder in Path::new(&path).ancestors().map(|part| root.join("memory").join(part)) {
                // Without a limit it is a number beyond all memory.
                let limit = number(folder.join("memory.limit_in_bytes")).filter(|&limit| limit < 1 << 60);
                if let Some(limit) = limit {
                    let used = number(folder.join("memory.usage_in_bytes"));
                    let cached = used.and_then(|_| cached(&folder, "total_inactive_file "));
                    self.add_group(&mut tightest, Group { limit, used, cached });
                }
            }
        }
        if let Some(Group { limit, used, cached }) = tightest {
            (self.cgroup_limit, self.cgroup_used, self.cgroup_cached) = (Some(limit), used, cached);
        }
    }

    /// What a process here can have at most: the machine's memory or the group's limit.
    pub fn limit(&self) -> Option<u64> {
        least(self.total, self.cgroup_least.or(self.cgroup_limit))
    }
}

/// How short this process, or the machine, is of something; `None` where the kernel does not tell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pressure {
    /// In how many percent of the last ten seconds somebody, and everybody, waited for memory.
    pub memory: Option<(f64, f64)>,
    /// The same for devices.
    pub io: Option<(f64, f64)>,
    /// Bytes of this process that are swapped out.
    pub swapped_bytes: Option<u64>,
    /// How readily the kernel swaps: 0 to 200.
    pub swappiness: Option<u64>,
}

impl Pressure {
    /// What holds now.
    pub fn of_this_machine() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let swapped = read("/proc/self/status").and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("VmSwap:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        });
        Pressure {
            memory: read("/proc/pressure/memory").and_then(|text| stalls(&text)),
            io: read("/proc/pressure/io").and_then(|text| stalls(&text)),
            swapped_bytes: swapped,
            swappiness: read("/proc/sys/vm/swappiness").and_then(|text| text.trim().parse().ok()),
        }
    }
}

/// The averages over ten seconds of a file of pressure stall information.
fn stalls(text: &str) -> Option<(f64, f64)> {
    let of = |kind: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
    };
    Some((of("some ")?, of("full ")?))
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let text = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    500 kB\nSwapTotal: 0 kB\n";
        let memory = Memory::from_meminfo(text);
        assert_eq!((memory.total, memory.available), (Some(1_024_000), Some(512_000)));
        assert_eq!((memory.swap_total, memory.swap_free), (Some(0), None));
        assert_eq!(Memory::from_meminfo("garbage\nMemTotal: x kB"), Memory::default());
    }

    #[test]
    fn stalls_are_read() {
        let text = "some avg10=1.50 avg60=0.10 avg300=0.00 total=7\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(stalls(text), Some((1.5, 0.25)));
        assert_eq!(stalls("some avg10=x"), None);
        assert_eq!(stalls(""), None);
    }

    #[test]
    fn the_tightest_group_around_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(root.path().join("a/memory.max"), "1000\n").unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(inner.join("memory.current"), "300\n").unwrap();
        std::fs::write(root.path().join("a/memory.current"), "900\n").unwrap();
        std::fs::write(root.path().join("a/memory.stat"), "anon 9\ninactive_file 120\nactive_file 30\n")
            .unwrap();
        let look = |total| {
            let mut memory = Memory { total, ..Memory::default() };
            memory.add_cgroup("0::/a/b\n", root.path());
            ((memory.cgroup_limit, memory.cgroup_used, memory.cgroup_cached), memory.limit())
        };
        // Others in the group around it have used most of that.
        assert_eq!(look(Some(5000)), ((Some(1000), Some(900), Some(120)), Some(1000)));
        // A narrower limit of its own holds for what it may have; what is nearly used up is the other one still.
        std::fs::write(inner.join("memory.max"), "500\n").unwrap();
        assert_eq!(look(None), ((Some(1000), Some(900), Some(120)), Some(500)));
        std::fs::write(inner.join("memory.current"), "480\n").unwrap();
        assert_eq!(look(None), ((Some(500), Some(480), None), Some(500)));
        // Where nothing is told of use, the narrowest one.
        for file in [inner.join("memory.current"), root.path().join("a/memory.current")] {
            std::fs::remove_file(file).unwrap();
        }
        assert_eq!(look(None), ((Some(500), None, None), Some(500)));
    }

    #[test]
    fn groups_of_the_first_version_are_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("memory/x");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(root.path().join("memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        std::fs::write(folder.join("memory.limit_in_bytes"), "2000\n").unwrap();
        std::fs::write(folder.join("memory.usage_in_bytes"), "1900\n").unwrap();
        std::fs::write(folder.join("memory.stat"), "inactive_file 7\ntotal_inactive_file 800\n").unwrap();
        let mut memory = Memory::default();
        memory.add_cgroup("3:cpu,cpuacct:/x\n4:memory:/x\n", root.path());
        assert_eq!(memory.cgroup_limit, Some(2000));
        assert_eq!((memory.cgroup_used, memory.cgroup_cached), (Some(1900), Some(800)));
    }
}
