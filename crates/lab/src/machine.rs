//! What a figure depends on besides the program: the machine, the kernel, the memory it was given.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The value behind `name:` in a file of such lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches(['\t', ' ', ':']).to_owned())
}

fn kibibytes(path: &str, name: &str) -> Option<u64> {
    field(path, name)?.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The commit that this program was built from, and whether its sources were edited since: see `build.rs`.
pub const COMMIT: &str = env!("BUILT_FROM");

/// Machine, kernel and the program's commit.
pub fn describe() -> Value {
    json!({
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": field("/proc/cpuinfo", "model name"),
        "memory_bytes": kibibytes("/proc/meminfo", "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "load_average": read("/proc/loadavg"),
        "commit": COMMIT,
    })
}

/// Bytes of memory that could be had now: of the machine, and of this process's memory cgroup where that has a limit.
pub fn available_memory() -> Option<u64> {
    let machine = kibibytes("/proc/meminfo", "MemAvailable");
    let group = || {
        let folder = memory_group()?;
        let number = |names: [&str; 2]| -> Option<u64> {
            names.iter().find_map(|name| read(folder.join(name))?.parse().ok())
        };
        let limit = number(["memory.limit_in_bytes", "memory.max"])?;
        let used = number(["memory.usage_in_bytes", "memory.current"])?;
        // What is cached of files goes where somebody needs the memory.
        Some(limit.saturating_sub(used.saturating_sub(group_cached().unwrap_or(0))))
    };
    machine.into_iter().chain(group()).min()
}

/// Most physical memory this process has had, in bytes.
pub fn peak_resident() -> Option<u64> {
    kibibytes("/proc/self/status", "VmHWM")
}

/// The process's CPU time, user and system.
pub fn cpu_time() -> Duration {
    let ticks = || -> Option<u64> {
        let stat = read("/proc/self/stat")?;
        // Behind the name, which is in brackets and may hold anything: fields 14 and 15 of the line.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    // USER_HZ is 100 wherever Linux runs.
    Duration::from_millis(ticks().unwrap_or(0) * 10)
}

/// Major faults that this process has had.
pub fn major_faults() -> u64 {
    let faults = || -> Option<u64> {
        let stat = read("/proc/self/stat")?;
        // Behind the name, which is in brackets and may hold anything: field 12 of the line.
        stat.rsplit_once(')')?.1.split_whitespace().nth(9)?.parse().ok()
    };
    faults().unwrap_or(0)
}

/// Bytes of files that are cached on the account of this process's memory cgroup, unless that is the root.
pub fn group_cached() -> Option<u64> {
    let text = read(memory_group()?.join("memory.stat"))?;
    let of =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    // Memory that processes share is counted there by the system, but is none.
    let cached: u64 = of("total_cache").or_else(|| of("file"))?;
    Some(cached.saturating_sub(of("total_shmem").or_else(|| of("shmem")).unwrap_or(0)))
}

/// The memory cgroup this process is in, unless that is the root.
fn memory_group() -> Option<PathBuf> {
    let text = read("/proc/self/cgroup")?;
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let base = match controllers {
            "memory" => "/sys/fs/cgroup/memory",
            "" => "/sys/fs/cgroup",
            _ => return None,
        };
        let folder = Path::new(base).join(path);
        let known = folder.join("memory.max_usage_in_bytes").exists() || folder.join("memory.peak").exists();
        (!path.is_empty() && known).then_some(folder)
    })
}

/// Limit and peak of the memory cgroup; null outside of one.
pub fn memory_cgroup() -> Value {
    let Some(folder) = memory_group() else { return Value::Null };
    let number = |names: [&str; 2]| -> Option<u64> {
        names.iter().find_map(|name| read(folder.join(name))?.parse().ok())
    };
    json!({
        "limit_bytes": number(["memory.limit_in_bytes", "memory.max"]),
        "peak_bytes": number(["memory.max_usage_in_bytes", "memory.peak"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_used_memory() {
        assert!(peak_resident().is_some_and(|bytes| bytes > 100_000));
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
        assert!(describe()["cpus"].as_u64().is_some_and(|cpus| cpus > 0));
    }

    #[test]
    fn the_commit_is_that_of_the_build() {
        // Whatever the variable says that scripts once set.
        let commit = describe()["commit"].clone();
        let hexadecimal = |text: &str| text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let named = commit.as_str().unwrap_or_default();
        assert!(named == "unknown" || named.split("-dirty-").all(hexadecimal), "{commit}");
    }
}
