//! What the steps have brought, by contestant and task.

use super::{Plan, contestants, task_id};
use crate::admin::task::Task;
use crate::record::Record;
use crate::sides::Side;
use serde_json::Value;

/// A run's steps.
pub(super) struct Found<'r> {
    pub(super) run: &'r Record,
    pub(super) plan: Plan,
}

impl Found<'_> {
    pub(super) fn contestants(&self) -> Vec<Side> {
        contestants(&self.run.order)
    }

    /// What a step has printed, of each repetition that has ended.
    pub(super) fn told(&self, id: impl Fn(u32) -> String) -> Vec<&Value> {
        (1..=self.run.order.repeat).filter_map(|time| self.run.find(&id(time))?.output.first()).collect()
    }

    pub(super) fn task(&self, side: Side, task: Task) -> Vec<&Value> {
        self.told(|time| task_id(side, task, time))
    }

    pub(super) fn each<T>(&self, side: Side, task: Task, of: impl Fn(&Value) -> Option<T>) -> Vec<T> {
        self.task(side, task).into_iter().filter_map(of).collect()
    }

    /// Seconds after which a task beside users was ended: those of the run, which may be of a lab that had others.
    pub(super) fn limit(&self) -> String {
        let words = self.run.ended.iter().map(|ended| ended.command.windows(2));
        let asked = words.flatten().find(|two| two[0] == "--limit").map(|two| two[1].clone());
        asked.unwrap_or_else(|| self.plan.limit.to_string())
    }

    /// The contestant, with its version as it was then.
    pub(super) fn title(&self, side: Side) -> String {
        let mut told = Task::ALL.into_iter().flat_map(|task| self.task(side, task));
        let name = told.find_map(|told| told.pointer("/server/server")?.as_str());
        name.map_or_else(|| side.name().to_owned(), str::to_owned)
    }

    /// Task and contestant of each row, where something was measured.
    pub(super) fn rows(&self) -> Vec<(Task, Side)> {
        let all = Task::ALL.into_iter();
        all.flat_map(|task| self.contestants().into_iter().map(move |side| (task, side)))
            .filter(|&(task, side)| !self.task(side, task).is_empty())
            .collect()
    }
}
