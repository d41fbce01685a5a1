//! `gannet doctor` beside a running server: its settings, forecasts and alarms, and who holds garbage back.

mod common;

use common::{Served, ends, run};
use serde_json::Value;

#[test]
fn a_running_server_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    ends(
        folder.path(),
        &["sql", "shop.gnt", "--create", "-q", "-c", "create table t (id int primary key)"],
        0,
    );
    let _server = Served::start(folder.path(), &["shop.gnt"]);
    let output = run(folder.path(), &["doctor", "shop.gnt", "--json"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    // How this machine is, is not the test's to say.
    assert!(output.status.code().is_some_and(|code| code <= 2) && output.stderr.is_empty(), "{output:?}");
    assert!(report["device"].is_null(), "a device that others use is not measured uninvited");
    let server = &report["server"];
    let setting = |name: &str| {
        let settings = server["settings"].as_array().unwrap();
        settings
            .iter()
            .find(|setting| setting["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {server:#}"))
    };
    assert_eq!(setting("snapshot_limit")["effective"], "0s");
    assert_eq!(setting("memory")["requested"], "256MiB");
    assert!(!setting("io")["reason"].as_str().unwrap().is_empty());
    let names: Vec<&str> =
        server["forecasts"].as_array().unwrap().iter().map(|gauge| gauge["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["horizon", "log", "space"]);
    // It runs for less than a minute: nothing is foretold.
    assert!(server["forecasts"].as_array().unwrap().iter().all(|gauge| gauge["seconds_left"].is_null()));
    assert!(server["memory"]["limit_bytes"].as_u64().unwrap() == 256 << 20);
    assert!(server["alarms"].is_array() && server["files"].as_array().unwrap().len() > 2);
    let text = String::from_utf8(run(folder.path(), &["doctor", "shop.gnt"]).stdout).unwrap();
    assert!(text.contains("forecasts") && text.contains("snapshot_limit"), "{text}");
}
