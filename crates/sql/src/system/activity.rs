//! Settings and sessions.

use super::{FALSE, NULL, Rows, array, int, optional, text};
use crate::exec::Context;
use crate::session::SessionInfo;
use crate::session::settings::{DEFINITIONS, Kind, Scope};
use crate::types::{Type, Value};
use std::collections::{HashMap, HashSet};

pub(super) fn settings(context: &Context<'_>) -> Rows {
    let settings = context.session.settings();
    let mut rows = Vec::with_capacity(DEFINITIONS.len());
    for (index, definition) in DEFINITIONS.iter().enumerate() {
        let kind = match definition.kind {
            Kind::Bool => "bool",
            Kind::Int { .. } | Kind::Time | Kind::Size => "integer",
            Kind::FineTime => "real",
            Kind::Enum(_) => "enum",
            Kind::Text | Kind::Name => "string",
        };
        let range = definition.kind.range();
        let limit = |number: i64| text(number.to_string());
        let words = match definition.kind {
            Kind::Enum(words) => array(Type::Text, words.iter().map(text).collect()),
            _ => NULL,
        };
        let shown = |value: &str| text(definition.kind.in_unit(value));
        rows.push(vec![
            text(definition.name),
            shown(settings.text(index)),
            optional(definition.kind.unit(), text),
            text(if definition.name.starts_with("enable_") {
                "Query Tuning / Planner Method Configuration"
            } else {
                "Gannet"
            }),
            text(definition.description),
            NULL,
            text(match definition.scope {
                Scope::Session => "user",
                Scope::Superuser => "superuser",
                Scope::Fixed => "internal",
            }),
            text(kind),
            text(settings.source(index)),
            optional(range, |(least, _)| limit(least)),
            optional(range, |(_, most)| limit(most)),
            words,
            shown(definition.default),
            shown(&settings.default_text(index)),
            NULL,
            NULL,
            FALSE,
        ]);
    }
    Ok(rows)
}

/// The number of a database that the server has open: by its name among them all.
pub(super) fn database_oid(context: &Context<'_>, name: &str) -> i64 {
    let place = context.session.database().neighbours().iter().position(|database| database.name() == name);
    FIRST_DATABASE + place.unwrap_or(0) as i64
}

/// The number of the first of them, where PostgreSQL has database `postgres`.
pub(crate) const FIRST_DATABASE: i64 = 5;

/// Sessions of all databases that the server has open.
pub(super) fn sessions(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    let superuser = is_superuser(context);
    for (place, database) in context.session.database().neighbours().iter().enumerate() {
        let oid = FIRST_DATABASE + place as i64;
        let waiting: HashSet<u64> = database
            .store()
            .transactions()
            .into_iter()
            .filter(|report| report.waiting.is_some())
            .map(|report| report.id.0)
            .collect();
        let snapshots: HashMap<u64, u64> =
            database.store().snapshots().into_iter().map(|report| (report.number, report.xmin.0)).collect();
        for session in database.sessions() {
            rows.push(session_row(
                context,
                superuser,
                (oid, database.name()),
                &session,
                &waiting,
                &snapshots,
            ));
        }
    }
    Ok(rows)
}

/// In place of a text that is not for who asks.
pub(super) const HIDDEN: &str = "<insufficient privilege>";

/// Whether who asks may see what others do.
pub(super) fn is_superuser(context: &Context<'_>) -> bool {
    context.session.is_superuser(Some(context.catalog))
}

fn session_row(
    context: &Context<'_>,
    superuser: bool,
    (oid, database): (i64, &str),
    session: &SessionInfo,
    waiting: &HashSet<u64>,
    snapshots: &HashMap<u64, u64>,
) -> Vec<Value> {
    let roles = &context.catalog.roles;
    let is_here = database == context.session.database;
    let role = match is_here {
        true => roles.get(&session.role),
        false => roles.values().find(|role| role.name == session.user),
    };
    let activity = session.activity.look();
    // What others run is theirs to tell. A role of the same name in another database is another one, as is one that was dropped.
    let visible = superuser || is_here && session.role == context.session.role;
    let shown = |value: Value| if visible { value } else { NULL };
    let transaction = session.interrupt.transaction().map(|id| id.0);
    let waits = transaction.is_some_and(|id| waiting.contains(&id));
    let idle = activity.state != "active";
    let (kind, event) = if waits {
        (text("Lock"), text("transactionid"))
    } else if session.interrupt.waits_for_memory() {
        (text("IPC"), text("MemoryTurn"))
    } else if idle {
        (text("Client"), text("ClientRead"))
    } else {
        (NULL, NULL)
    };
    let xmin = session.interrupt.transaction_number().and_then(|number| snapshots.get(&number));
    let number = |value: u64| int(i64::try_from(value).unwrap_or(i64::MAX));
    vec![
        int(oid),
        text(database),
        int(session.pid),
        NULL,
        optional(role, |role| int(role.oid)),
        text(&session.user),
        text(&activity.application),
        shown(optional(activity.client, |address| text(address.ip().to_string()))),
        NULL,
        shown(match activity.client {
            Some(address) => int(address.port()),
            None if activity.local => int(-1),
            None => NULL,
        }),
        shown(int(session.started)),
        shown(optional(activity.transaction_start, int)),
        shown(optional(activity.query_start, int)),
        shown(int(activity.state_change)),
        shown(kind),
        shown(event),
        shown(text(activity.state)),
        optional(transaction, number),
        optional(xmin.copied(), number),
        NULL,
        text(if visible { activity.query.as_str() } else { HIDDEN }),
        text("client backend"),
    ]
}
