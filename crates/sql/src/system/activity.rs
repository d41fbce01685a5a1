//! Settings and sessions.

use super::{FALSE, NULL, Rows, array, int, text};
use crate::exec::Context;
use crate::session::settings::{DEFINITIONS, Kind, Scope};
use crate::types::{Type, Value};

pub(super) fn settings(context: &Context<'_>) -> Rows {
    let settings = context.session.settings();
    let mut rows = Vec::with_capacity(DEFINITIONS.len());
    for (index, definition) in DEFINITIONS.iter().enumerate() {
        let (kind, unit) = match definition.kind {
            Kind::Bool => ("bool", NULL),
            Kind::Int { .. } => ("integer", NULL),
            Kind::Time => ("integer", text("ms")),
            Kind::Size => ("integer", text("kB")),
            Kind::Enum(_) => ("enum", NULL),
            Kind::Text => ("string", NULL),
        };
        let (least, most) = match definition.kind {
            Kind::Int { min, max } => (text(min.to_string()), text(max.to_string())),
            _ => (NULL, NULL),
        };
        let words = match definition.kind {
            Kind::Enum(words) => array(Type::Text, words.iter().map(text).collect()),
            _ => NULL,
        };
        let value = settings.text(index);
        rows.push(vec![
            text(definition.name),
            text(value),
            unit,
            text(if definition.name.starts_with("enable_") {
                "Query Tuning / Planner Method Configuration"
            } else {
                "Gannet"
            }),
            text(definition.description),
            NULL,
            text(if definition.scope == Scope::Fixed { "internal" } else { "user" }),
            text(kind),
            text(if value == definition.default { "default" } else { "session" }),
            least,
            most,
            words,
            text(definition.default),
            text(definition.default),
            NULL,
            NULL,
            FALSE,
        ]);
    }
    Ok(rows)
}

pub(super) fn sessions(context: &Context<'_>) -> Rows {
    let roles = &context.catalog.roles;
    let superuser = roles.values().any(|role| role.name == context.session.user && role.superuser);
    let mut rows = Vec::new();
    for session in context.session.database().sessions() {
        let role = roles.values().find(|role| role.name == session.user);
        let activity = session.activity.lock().clone();
        // What others run is theirs to tell.
        let visible = superuser || session.user == context.session.user;
        let shown = |value: Value| if visible { value } else { NULL };
        rows.push(vec![
            int(5),
            text(&context.session.database),
            int(session.pid),
            NULL,
            super::optional(role, |role| int(role.oid)),
            text(&session.user),
            text(&activity.application),
            NULL,
            NULL,
            NULL,
            shown(int(session.started)),
            shown(super::optional(activity.transaction_start, int)),
            shown(int(activity.query_start)),
            shown(int(activity.state_change)),
            NULL,
            NULL,
            shown(text(activity.state)),
            NULL,
            NULL,
            NULL,
            text(if visible { activity.query.as_str() } else { "<insufficient privilege>" }),
            text("client backend"),
        ]);
    }
    Ok(rows)
}
