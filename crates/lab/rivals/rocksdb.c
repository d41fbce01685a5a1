/* RocksDB, WriteOptions.sync = true.
 *
 * Settings: of the given memory a quarter for memtables (at most two) where rows are written, the rest block cache, with index and
 * filter blocks charged to it; direct I/O for reads, flushes and compactions, so that nothing is cached twice (`--direct 0`: through
 * the page cache); no compression (rows do not compress); bloom filters of 10 bits; level style with dynamic level sizes; concurrent
 * memtable writes and pipelined group commit as by default; two background threads for the machine's two cores, more where there are
 * more. Many rows are looked up by `rocksdb_batched_multi_get_cf`.
 *
 * An update reads the row first, as one has to that says whether the row was there; `--blind 1` leaves that out and
 * overwrites unseen, which only a log-structured store can do without touching the row's page. */
#include "common.h"
#include <rocksdb/c.h>

static rocksdb_t *db;
static rocksdb_writeoptions_t *sync_writes;
static rocksdb_readoptions_t *reads;
static rocksdb_column_family_handle_t *family;

static void check(char *error, const char *what) {
    if (error) fail(what, error);
}

/* Bytes of memory that rows which were written may have. */
static uint64_t memtables(void) {
    int reads_only = !strcmp(args.workload, "lookups") || !strcmp(args.workload, "multiget");
    return reads_only ? 0 : args.memory / 4;
}

static rocksdb_options_t *make_options(void) {
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_increase_parallelism(options, (int)sysconf(_SC_NPROCESSORS_ONLN));
    if (memtables()) rocksdb_options_set_write_buffer_size(options, memtables() / 2);
    rocksdb_options_set_max_write_buffer_number(options, 2);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_use_direct_reads(options, args.direct != 0);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, args.direct != 0);
    rocksdb_options_compaction_readahead_size(options, 1 << 20);
    rocksdb_options_set_max_open_files(options, 256);
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(args.memory - memtables()));
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_block_based_options_set_block_size(table, args.page_size);
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(options, table);
    return options;
}

static void *open_session(void) { return NULL; }

static void get(void *session, uint64_t number, unsigned char *value) {
    (void)session;
    unsigned char key[8];
    char *error = NULL;
    make_key(number, key);
    rocksdb_pinnableslice_t *found = rocksdb_get_pinned(db, reads, (char *)key, 8, &error);
    check(error, "get");
    if (!found) fail("get", "a row that was loaded is not there");
    size_t len;
    const char *data = rocksdb_pinnableslice_value(found, &len);
    if (len != args.value_size) fail("get", "a value of another length");
    memcpy(value, data, len);
    rocksdb_pinnableslice_destroy(found);
}

static void multi_get(void *session, const uint64_t *numbers, size_t count, unsigned char *value) {
    (void)session;
    unsigned char *keys = malloc(count * 8);
    const char **places = calloc(count, sizeof *places);
    size_t *lens = calloc(count, sizeof *lens);
    rocksdb_pinnableslice_t **found = calloc(count, sizeof *found);
    char **errors = calloc(count, sizeof *errors);
    for (size_t i = 0; i < count; i++) {
        make_key(numbers[i], keys + i * 8);
        places[i] = (char *)keys + i * 8;
        lens[i] = 8;
    }
    rocksdb_batched_multi_get_cf(db, reads, family, count, places, lens, found, errors, 0);
    for (size_t i = 0; i < count; i++) {
        check(errors[i], "multi_get");
        if (!found[i]) fail("multi_get", "a row that was loaded is not there");
        size_t len;
        const char *data = rocksdb_pinnableslice_value(found[i], &len);
        if (len != args.value_size) fail("multi_get", "a value of another length");
        memcpy(value, data, len);
        rocksdb_pinnableslice_destroy(found[i]);
    }
    free(errors);
    free(found);
    free(lens);
    free(places);
    free(keys);
}

static void update(void *session, uint64_t number, uint64_t version, unsigned char *value) {
    (void)session;
    unsigned char key[8];
    char *error = NULL;
    make_key(number, key);
    if (!args.blind) {
        size_t len;
        char *before = rocksdb_get(db, reads, (char *)key, 8, &len, &error);
        check(error, "get");
        if (!before) fail("get", "a row that was loaded is not there");
        rocksdb_free(before);
    }
    make_value(number, version, value);
    rocksdb_put(db, sync_writes, (char *)key, 8, (char *)value, args.value_size, &error);
    check(error, "put");
}

/* "rocksdb" and its version: its C interface has none, but it writes it into the log that it begins anew when it is opened. */
static const char *name(void) {
    static char text[64] = "rocksdb";
    char line[1024], path[4096];
    snprintf(path, sizeof path, "%s/LOG", args.dir);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *version = strstr(line, "RocksDB version: ");
        char number[32];
        if (!version || sscanf(version, "RocksDB version: %31[0-9.]", number) != 1) continue;
        snprintf(text, sizeof text, "rocksdb %s", number);
        break;
    }
    if (file) fclose(file);
    return text;
}

static void load(void) {
    unsigned char *value = malloc(args.value_size + 8);
    rocksdb_writeoptions_t *writes = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(writes, 1);
    char *error = NULL;
    for (uint64_t i = 0; i < args.rows; i++) {
        unsigned char key[8];
        make_key(i, key);
        make_value(i, 0, value);
        rocksdb_put(db, writes, (char *)key, 8, (char *)value, args.value_size, &error);
        check(error, "put");
    }
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    rocksdb_flush(db, flush, &error);
    check(error, "flush");
    rocksdb_compact_range(db, NULL, 0, NULL, 0);
    free(value);
}

int main(int argc, char **argv) {
    parse(argc, argv);
    char *error = NULL;
    rocksdb_options_t *options = make_options();
    const char *names[] = {"default"};
    const rocksdb_options_t *family_options[] = {options};
    db = rocksdb_open_column_families(options, args.dir, 1, names, family_options, &family, &error);
    check(error, args.dir);
    sync_writes = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(sync_writes, 1);
    reads = rocksdb_readoptions_create();
    if (!strcmp(args.workload, "load")) {
        load();
        printf("{\"workload\":\"load\",\"driver\":\"%s\"}\n", name());
    } else {
        char settings[256];
        snprintf(settings, sizeof settings,
                 "{\"memory_bytes\":%llu,\"block_size\":%llu,\"direct\":%s,\"sync\":true,"
                 "\"memtables_bytes\":%llu,\"compression\":\"none\"}",
                 (unsigned long long)args.memory, (unsigned long long)args.page_size, args.direct ? "true" : "false",
                 (unsigned long long)memtables());
        char driver[80];
        snprintf(driver, sizeof driver, "%s%s", name(), args.blind ? " (blind)" : "");
        run(driver, settings);
    }
    rocksdb_column_family_handle_destroy(family);
    rocksdb_close(db);
    return 0;
}
