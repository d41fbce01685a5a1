//! What the steps have brought, by contestant and task.

use super::{Plan, contestants, task_id, word};
use crate::admin::task::Task;
use crate::record::Record;
use crate::servers::Kind;
use serde_json::Value;

/// A run's steps.
pub(super) struct Found<'r> {
    pub(super) run: &'r Record,
    pub(super) plan: Plan,
}

impl Found<'_> {
    pub(super) fn contestants(&self) -> Vec<Kind> {
        contestants(&self.run.order)
    }

    /// What a step has printed, of each repetition that has ended.
    pub(super) fn told(&self, id: impl Fn(u32) -> String) -> Vec<&Value> {
        (1..=self.run.order.repeat).filter_map(|time| self.run.find(&id(time))?.output.first()).collect()
    }

    pub(super) fn task(&self, kind: Kind, task: Task) -> Vec<&Value> {
        self.told(|time| task_id(kind, task, time))
    }

    pub(super) fn each(&self, kind: Kind, task: Task, of: impl Fn(&Value) -> Option<f64>) -> Vec<f64> {
        self.task(kind, task).into_iter().filter_map(of).collect()
    }

    /// The contestant, with its version as it was then.
    pub(super) fn title(&self, kind: Kind) -> String {
        let mut told = Task::ALL.into_iter().flat_map(|task| self.task(kind, task));
        let name = told.find_map(|told| told.pointer("/server/server")?.as_str());
        name.map_or_else(|| word(kind).to_owned(), str::to_owned)
    }

    /// Task and contestant of each row, where something was measured.
    pub(super) fn rows(&self) -> Vec<(Task, Kind)> {
        let all = Task::ALL.into_iter();
        all.flat_map(|task| self.contestants().into_iter().map(move |kind| (task, kind)))
            .filter(|&(task, kind)| !self.task(kind, task).is_empty())
            .collect()
    }
}
