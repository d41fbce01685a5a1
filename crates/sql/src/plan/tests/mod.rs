//! The planner's choices. Plans are compared with those in `plans.golden` beside this file; `UPDATE_GOLDEN=1` writes them anew, for
//! a person to read the difference.

mod fixture;
mod logical;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Compares plans with the golden ones of a file.
fn golden(file: &str, plans: &[(&str, String)]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/plan/tests").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let mut text = String::new();
        for (name, plan) in plans {
            _ = write!(text, "-- {name}\n{plan}\n");
        }
        std::fs::write(&path, text).expect("the golden file can be written");
        return;
    }
    let text = std::fs::read_to_string(&path).expect("the golden file is there");
    let known: BTreeMap<&str, &str> =
        text.split("-- ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    let mut wrong = String::new();
    for (name, plan) in plans {
        let expected = known.get(name).map(|plan| plan.trim_end());
        if expected != Some(plan.trim_end()) {
            let expected = expected.unwrap_or("nothing");
            _ = write!(wrong, "\n-- {name}\nis\n{plan}\nnot\n{expected}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
