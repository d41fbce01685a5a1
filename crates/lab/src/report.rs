//! One JSON object per measurement.

use crate::driver::Driver;
use crate::{driver::Rows, machine};
use gannet_io::residency;
use serde_json::{Value, json};

/// Puts a measurement together. `driver` is still open; `measured` is what the workload has to say.
pub fn measurement(driver: &dyn Driver, workload: &str, rows: &Rows, plan: Value, measured: Value) -> Value {
    let cached = residency(driver.files()).cached_bytes();
    json!({
        "workload": workload,
        "driver": driver.name(),
        "settings": driver.settings(),
        "rows": rows.count,
        "key_bytes": crate::driver::KEY_LEN,
        "value_bytes": rows.value_len,
        "plan": plan,
        "measured": measured,
        "memory": {
            "of_the_store": driver.memory(),
            "peak_resident_bytes": machine::peak_resident(),
            "cgroup": machine::memory_cgroup(),
        },
        "cached_bytes": cached,
        "machine": machine::describe(),
    })
}
