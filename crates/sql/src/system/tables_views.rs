//! Which views `pg_catalog` has, as PostgreSQL 15 has them.

use super::{activity, monitor, none, roles, system_tables, views};

system_tables! {
    pub(super) static VIEWS;
    12000 pg_catalog pg_roles = roles::roles {
        rolname: Name, rolsuper: Bool, rolinherit: Bool, rolcreaterole: Bool, rolcreatedb: Bool,
        rolcanlogin: Bool,
        rolreplication: Bool, rolconnlimit: Int4, rolpassword: Text, rolvaliduntil: TimestampTz,
        rolbypassrls: Bool,
        rolconfig: TextArray, oid: Oid,
    }
    12014 pg_catalog pg_user = roles::users {
        usename: Name, usesysid: Oid, usecreatedb: Bool, usesuper: Bool, userepl: Bool, usebypassrls: Bool,
        passwd: Text,
        valuntil: TimestampTz, useconfig: TextArray,
    }
    12010 pg_catalog pg_group = none {
        groname: Name, grosysid: Oid, grolist: OidArray,
    }
    12033 pg_catalog pg_tables = views::tables {
        schemaname: Name, tablename: Name, tableowner: Name, tablespace: Name, hasindexes: Bool, hasrules: Bool,
        hastriggers: Bool, rowsecurity: Bool,
    }
    12043 pg_catalog pg_indexes = views::indexes {
        schemaname: Name, tablename: Name, indexname: Name, tablespace: Name, indexdef: Text,
    }
    12048 pg_catalog pg_sequences = views::sequences {
        schemaname: Name, sequencename: Name, sequenceowner: Name, data_type: Regtype, start_value: Int8,
        min_value: Int8, max_value: Int8, increment_by: Int8, cycle: Bool, cache_size: Int8, last_value: Int8,
    }
    12028 pg_catalog pg_views = none {
        schemaname: Name, viewname: Name, viewowner: Name, definition: Text,
    }
    12038 pg_catalog pg_matviews = none {
        schemaname: Name, matviewname: Name, matviewowner: Name, tablespace: Name, hasindexes: Bool,
        ispopulated: Bool,
        definition: Text,
    }
    12023 pg_catalog pg_rules = none {
        schemaname: Name, tablename: Name, rulename: Name, definition: Text,
    }
    12018 pg_catalog pg_policies = none {
        schemaname: Name, tablename: Name, policyname: Name, permissive: Text, roles: NameArray, cmd: Text,
        qual: Text,
        with_check: Text,
    }
    12104 pg_catalog pg_settings = activity::settings {
        name: Text, setting: Text, unit: Text, category: Text, short_desc: Text, extra_desc: Text,
        context: Text,
        vartype: Text, source: Text, min_val: Text, max_val: Text, enumvals: TextArray, boot_val: Text,
        reset_val: Text,
        sourcefile: Text, sourceline: Int4, pending_restart: Bool,
    }
    12053 pg_catalog pg_stats = views::statistics {
        schemaname: Name, tablename: Name, attname: Name, inherited: Bool, null_frac: Float4, avg_width: Int4,
        n_distinct: Float4, most_common_vals: Text, most_common_freqs: Float4Array, histogram_bounds: Text,
        correlation: Float4, most_common_elems: Text, most_common_elem_freqs: Float4Array,
        elem_count_histogram: Float4Array,
    }
    12222 pg_catalog pg_stat_activity = activity::sessions {
        datid: Oid, datname: Name, pid: Int4, leader_pid: Int4, usesysid: Oid, usename: Name,
        application_name: Text,
        client_addr: Text, client_hostname: Text, client_port: Int4, backend_start: TimestampTz,
        xact_start: TimestampTz, query_start: TimestampTz, state_change: TimestampTz, wait_event_type: Text,
        wait_event: Text, state: Text, backend_xid: Xid, backend_xmin: Xid, query_id: Int8, query: Text,
        backend_type: Text,
    }
    12073 pg_catalog pg_locks = monitor::locks {
        locktype: Text, database: Oid, relation: Oid, transactionid: Xid, virtualtransaction: Text, pid: Int4,
        mode: Text, granted: Bool, waitstart: TimestampTz,
    }
    12095 pg_catalog pg_prepared_statements = monitor::prepared {
        name: Text, statement: Text, prepare_time: TimestampTz, parameter_types: TextArray, from_sql: Bool,
    }
    12156 pg_catalog pg_stat_user_tables = monitor::tables {
        relid: Oid, schemaname: Name, relname: Name, n_live_tup: Int8, last_analyze: TimestampTz,
    }
    15001 pg_catalog gannet_settings = monitor::settings {
        name: Text, requested: Text, effective: Text, source: Text, reason: Text,
    }
    15002 pg_catalog gannet_memory = monitor::memory {
        purpose: Text, used_bytes: Int8, peak_bytes: Int8, limit_bytes: Int8,
    }
    15003 pg_catalog gannet_io = monitor::io {
        class: Text, operation: Text, requests: Int8, bytes: Int8, errors: Int8, total_ms: Float8,
        latency_us_p50: Float8, latency_us_p95: Float8, latency_us_p99: Float8, latency_us_max: Float8,
    }
    15004 pg_catalog gannet_files = monitor::files {
        path: Text, bytes: Int8, os_cached_bytes: Int8, mode: Text, reason: Text,
    }
    15005 pg_catalog gannet_jobs = monitor::jobs {
        id: Int8, job: Text, about: Text, state: Text, phase: Text, unit: Text, done: Int8, total: Int8, remaining: Int8,
        rate: Float8, seconds: Float8, seconds_left: Float8, paced_seconds: Float8, bytes_read: Int8, bytes_written: Int8,
        started: TimestampTz, pid: Int4, reason: Text, detail: Text,
    }
    15006 pg_catalog gannet_snapshots = monitor::snapshots {
        pid: Int4, xmin: Xid, taken: TimestampTz, age_seconds: Float8, kind: Text, held_bytes: Int8, alone_bytes: Int8,
        limit_seconds: Float8,
    }
    15007 pg_catalog gannet_restart = monitor::restart {
        phase: Text, crashed: Bool, open_seconds: Float8, background_seconds: Float8, seconds_left: Float8,
        log_bytes: Int8, healed_pages: Int8, pages: Int8, pages_left: Int8, bytes_left: Int8, redone_pages: Int8,
        applied_changes: Int8, transactions: Int8, transactions_left: Int8, detail: Text,
    }
    15011 pg_catalog gannet_alarms = monitor::alarms {
        name: Text, severity: Text, since: TimestampTz, what: Text, figure: Float8, threshold: Float8, unit: Text,
        advice: Text,
    }
    15012 pg_catalog gannet_forecasts = monitor::forecasts {
        name: Text, bytes: Float8, limit_bytes: Float8, bytes_per_second: Float8, seconds_left: Float8,
        looked_seconds: Float8, detail: Text,
    }
    15013 pg_catalog gannet_archive = monitor::archive {
        destination: Text, state: Text, archived_lsn: Int8, archived_until: TimestampTz, behind_bytes: Int8,
        behind_seconds: Float8, written_bytes: Int8, failing_since: TimestampTz, error: Text, gap_from: Int8, gap_to: Int8,
    }
    15014 pg_catalog gannet_machine = monitor::machine {
        memory_bytes: Int8, available_bytes: Int8, swap_bytes: Int8, swap_free_bytes: Int8, cgroup_limit_bytes: Int8,
        cgroup_used_bytes: Int8, cgroup_cached_bytes: Int8, cgroup_swap_limit_bytes: Int8, memory_some_percent: Float8,
        memory_full_percent: Float8, io_some_percent: Float8, io_full_percent: Float8, swapped_bytes: Int8, swappiness: Int8,
    }
    12090 pg_catalog pg_prepared_xacts = none {
        transaction: Xid, gid: Text, prepared: TimestampTz, owner: Name, database: Name,
    }
    12099 pg_catalog pg_seclabels = none {
        objoid: Oid, classoid: Oid, objsubid: Int4, objtype: Text, objnamespace: Oid, objname: Text,
        provider: Text,
        label: Text,
    }
}
