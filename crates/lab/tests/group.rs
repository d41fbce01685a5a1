//! This process in a group, and out of it: no other test runs in it, whose programs would begin in that group.

use gannet_lab::confine::Group;

#[test]
fn a_process_is_where_it_was_once_it_has_left_a_group() {
    let Some(group) = Group::new(1 << 30) else { return };
    let told = || std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let before = told();
    let inside = group.enter().unwrap();
    assert!(told().contains(&format!("gannet-lab-{}-", std::process::id())), "{}", told());
    drop(inside);
    assert_eq!(told(), before);
}
