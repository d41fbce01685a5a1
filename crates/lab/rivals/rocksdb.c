/* RocksDB, WriteOptions.sync = true.
 *
 * Settings: of the given memory a quarter for memtables (at most two), the rest block cache, with index and filter blocks
 * charged to it; direct I/O for reads, flushes and compactions, so that nothing is cached twice; no compression (rows do
 * not compress); bloom filters of 10 bits; level style with dynamic level sizes; concurrent memtable writes and
 * pipelined group commit as by default; two background threads for the machine's two cores, more where there are more.
 *
 * An update reads the row first, as one has to that says whether the row was there; `--blind 1` leaves that out and
 * overwrites unseen, which only a log-structured store can do without touching the row's page. */
#include "common.h"
#include <rocksdb/c.h>

static rocksdb_t *db;
static rocksdb_writeoptions_t *sync_writes;
static rocksdb_readoptions_t *reads;

static void check(char *error, const char *what) {
    if (error) fail(what, error);
}

static rocksdb_options_t *make_options(void) {
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_increase_parallelism(options, (int)sysconf(_SC_NPROCESSORS_ONLN));
    rocksdb_options_set_write_buffer_size(options, args.memory / 8);
    rocksdb_options_set_max_write_buffer_number(options, 2);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_use_direct_reads(options, 1);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
    rocksdb_options_compaction_readahead_size(options, 1 << 20);
    rocksdb_options_set_max_open_files(options, 256);
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(args.memory - args.memory / 4));
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_block_based_options_set_block_size(table, args.page_size);
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(options, table);
    return options;
}

static void *open_session(void) { return NULL; }

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
    db = rocksdb_open(make_options(), args.dir, &error);
    check(error, args.dir);
    sync_writes = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(sync_writes, 1);
    reads = rocksdb_readoptions_create();
    if (!strcmp(args.workload, "load")) {
        load();
        printf("{\"workload\":\"load\",\"driver\":\"rocksdb\"}\n");
    } else if (!strcmp(args.workload, "updates")) {
        char settings[256];
        snprintf(settings, sizeof settings,
                 "{\"memory_bytes\":%llu,\"block_size\":%llu,\"direct\":true,\"sync\":true,"
                 "\"memtables_bytes\":%llu,\"compression\":\"none\"}",
                 (unsigned long long)args.memory, (unsigned long long)args.page_size,
                 (unsigned long long)args.memory / 4);
        run_updates(args.blind ? "rocksdb (blind)" : "rocksdb", settings);
    } else {
        fail(args.workload, "there is no such workload");
    }
    rocksdb_close(db);
    return 0;
}
