//! Which views `pg_catalog` has, as PostgreSQL 15 has them.

use super::{activity, none, roles, system_tables, views};

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
    12090 pg_catalog pg_prepared_xacts = none {
        transaction: Xid, gid: Text, prepared: TimestampTz, owner: Name, database: Name,
    }
    12099 pg_catalog pg_seclabels = none {
        objoid: Oid, classoid: Oid, objsubid: Int4, objtype: Text, objnamespace: Oid, objname: Text,
        provider: Text,
        label: Text,
    }
}
