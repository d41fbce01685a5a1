//! Which views `information_schema` has, as PostgreSQL 15 has them.

use super::{information, none, system_tables};

system_tables! {
    pub(super) static INFORMATION;
    13425 information_schema tables = information::tables {
        table_catalog: Name, table_schema: Name, table_name: Name, table_type: Varchar,
        self_referencing_column_name: Name, reference_generation: Varchar, user_defined_type_catalog: Name,
        user_defined_type_schema: Name, user_defined_type_name: Name, is_insertable_into: Varchar,
        is_typed: Varchar,
        commit_action: Varchar,
    }
    13295 information_schema columns = information::columns {
        table_catalog: Name, table_schema: Name, table_name: Name, column_name: Name, ordinal_position: Int4,
        column_default: Varchar, is_nullable: Varchar, data_type: Varchar, character_maximum_length: Int4,
        character_octet_length: Int4, numeric_precision: Int4, numeric_precision_radix: Int4,
        numeric_scale: Int4,
        datetime_precision: Int4, interval_type: Varchar, interval_precision: Int4, character_set_catalog: Name,
        character_set_schema: Name, character_set_name: Name, collation_catalog: Name, collation_schema: Name,
        collation_name: Name, domain_catalog: Name, domain_schema: Name, domain_name: Name, udt_catalog: Name,
        udt_schema: Name, udt_name: Name, scope_catalog: Name, scope_schema: Name, scope_name: Name,
        maximum_cardinality: Int4, dtd_identifier: Name, is_self_referencing: Varchar, is_identity: Varchar,
        identity_generation: Varchar, identity_start: Varchar, identity_increment: Varchar,
        identity_maximum: Varchar,
        identity_minimum: Varchar, identity_cycle: Varchar, is_generated: Varchar,
        generation_expression: Varchar,
        is_updatable: Varchar,
    }
    13411 information_schema table_constraints = information::table_constraints {
        constraint_catalog: Name, constraint_schema: Name, constraint_name: Name, table_catalog: Name,
        table_schema: Name, table_name: Name, constraint_type: Varchar, is_deferrable: Varchar,
        initially_deferred: Varchar, enforced: Varchar, nulls_distinct: Varchar,
    }
    13329 information_schema key_column_usage = information::key_column_usage {
        constraint_catalog: Name, constraint_schema: Name, constraint_name: Name, table_catalog: Name,
        table_schema: Name, table_name: Name, column_name: Name, ordinal_position: Int4,
        position_in_unique_constraint: Int4,
    }
    13382 information_schema schemata = information::schemata {
        catalog_name: Name, schema_name: Name, schema_owner: Name, default_character_set_catalog: Name,
        default_character_set_schema: Name, default_character_set_name: Name, sql_path: Varchar,
    }
    13339 information_schema referential_constraints = information::referential_constraints {
        constraint_catalog: Name, constraint_schema: Name, constraint_name: Name,
        unique_constraint_catalog: Name,
        unique_constraint_schema: Name, unique_constraint_name: Name, match_option: Varchar,
        update_rule: Varchar,
        delete_rule: Varchar,
    }
    13300 information_schema constraint_column_usage = information::constraint_column_usage {
        table_catalog: Name, table_schema: Name, table_name: Name, column_name: Name, constraint_catalog: Name,
        constraint_schema: Name, constraint_name: Name,
    }
    13260 information_schema check_constraints = information::check_constraints {
        constraint_catalog: Name, constraint_schema: Name, constraint_name: Name, check_clause: Varchar,
    }
    13386 information_schema sequences = information::sequences {
        sequence_catalog: Name, sequence_schema: Name, sequence_name: Name, data_type: Varchar,
        numeric_precision: Int4,
        numeric_precision_radix: Int4, numeric_scale: Int4, start_value: Varchar, minimum_value: Varchar,
        maximum_value: Varchar, increment: Varchar, cycle_option: Varchar,
    }
    13483 information_schema views = none {
        table_catalog: Name, table_schema: Name, table_name: Name, view_definition: Varchar,
        check_option: Varchar,
        is_updatable: Varchar, is_insertable_into: Varchar, is_trigger_updatable: Varchar,
        is_trigger_deletable: Varchar, is_trigger_insertable_into: Varchar,
    }
    13440 information_schema triggers = none {
        trigger_catalog: Name, trigger_schema: Name, trigger_name: Name, event_manipulation: Varchar,
        event_object_catalog: Name, event_object_schema: Name, event_object_table: Name, action_order: Int4,
        action_condition: Varchar, action_statement: Varchar, action_orientation: Varchar,
        action_timing: Varchar,
        action_reference_old_table: Name, action_reference_new_table: Name, action_reference_old_row: Name,
        action_reference_new_row: Name, created: TimestampTz,
    }
    13377 information_schema routines = none {
        specific_catalog: Name, specific_schema: Name, specific_name: Name, routine_catalog: Name,
        routine_schema: Name,
        routine_name: Name, routine_type: Varchar, module_catalog: Name, module_schema: Name, module_name: Name,
        udt_catalog: Name, udt_schema: Name, udt_name: Name, data_type: Varchar, character_maximum_length: Int4,
        character_octet_length: Int4, character_set_catalog: Name, character_set_schema: Name,
        character_set_name: Name, collation_catalog: Name, collation_schema: Name, collation_name: Name,
        numeric_precision: Int4, numeric_precision_radix: Int4, numeric_scale: Int4, datetime_precision: Int4,
        interval_type: Varchar, interval_precision: Int4, type_udt_catalog: Name, type_udt_schema: Name,
        type_udt_name: Name, scope_catalog: Name, scope_schema: Name, scope_name: Name,
        maximum_cardinality: Int4,
        dtd_identifier: Name, routine_body: Varchar, routine_definition: Varchar, external_name: Varchar,
        external_language: Varchar, parameter_style: Varchar, is_deterministic: Varchar,
        sql_data_access: Varchar,
        is_null_call: Varchar, sql_path: Varchar, schema_level_routine: Varchar, max_dynamic_result_sets: Int4,
        is_user_defined_cast: Varchar, is_implicitly_invocable: Varchar, security_type: Varchar,
        to_sql_specific_catalog: Name, to_sql_specific_schema: Name, to_sql_specific_name: Name,
        as_locator: Varchar,
        created: TimestampTz, last_altered: TimestampTz, new_savepoint_level: Varchar,
        is_udt_dependent: Varchar,
        result_cast_from_data_type: Varchar, result_cast_as_locator: Varchar, result_cast_char_max_length: Int4,
        result_cast_char_octet_length: Int4, result_cast_char_set_catalog: Name,
        result_cast_char_set_schema: Name,
        result_cast_char_set_name: Name, result_cast_collation_catalog: Name,
        result_cast_collation_schema: Name,
        result_cast_collation_name: Name, result_cast_numeric_precision: Int4,
        result_cast_numeric_precision_radix: Int4, result_cast_numeric_scale: Int4,
        result_cast_datetime_precision: Int4, result_cast_interval_type: Varchar,
        result_cast_interval_precision: Int4, result_cast_type_udt_catalog: Name,
        result_cast_type_udt_schema: Name,
        result_cast_type_udt_name: Name, result_cast_scope_catalog: Name, result_cast_scope_schema: Name,
        result_cast_scope_name: Name, result_cast_maximum_cardinality: Int4, result_cast_dtd_identifier: Name,
    }
}
