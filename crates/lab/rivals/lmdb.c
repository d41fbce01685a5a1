/* LMDB: the database is mapped, and the page cache is its cache.
 *
 * Settings: `--read-ahead 1` is LMDB as it opens by itself, `--read-ahead 0` adds MDB_NORDAHEAD, which its documentation advises where the
 * database is larger than memory. Each thread has a read transaction that is renewed for every look-up, as every look-up is to see what has
 * been committed until then. Pages are those of the system. Commits are synchronous (the default). */
#include "common.h"
#include <lmdb.h>

static MDB_env *env;
static MDB_dbi dbi;

static void check(int error, const char *what) {
    if (error) fail(what, mdb_strerror(error));
}

static void *open_session(void) {
    MDB_txn *txn;
    check(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "begin");
    mdb_txn_reset(txn);
    return txn;
}

static void get_within(MDB_txn *txn, uint64_t number, unsigned char *value) {
    unsigned char key_bytes[8];
    make_key(number, key_bytes);
    MDB_val key = {8, key_bytes}, data;
    check(mdb_get(txn, dbi, &key, &data), "get");
    if (data.mv_size != args.value_size) fail("get", "a value of another length");
    memcpy(value, data.mv_data, data.mv_size);
}

static void get(void *session, uint64_t number, unsigned char *value) { multi_get(session, &number, 1, value); }

/* LMDB has no look-up of many: they go one after the other in one transaction. */
static void multi_get(void *session, const uint64_t *numbers, size_t count, unsigned char *value) {
    MDB_txn *txn = session;
    check(mdb_txn_renew(txn), "renew");
    for (size_t i = 0; i < count; i++) get_within(txn, numbers[i], value);
    mdb_txn_reset(txn);
}

static void put(MDB_txn *txn, uint64_t number, uint64_t version, unsigned char *value, unsigned flags) {
    unsigned char key_bytes[8];
    make_key(number, key_bytes);
    make_value(number, version, value);
    MDB_val key = {8, key_bytes}, data = {args.value_size, value};
    check(mdb_put(txn, dbi, &key, &data, flags), "put");
}

static void update(void *session, uint64_t number, uint64_t version, unsigned char *value) {
    (void)session;
    MDB_txn *txn;
    check(mdb_txn_begin(env, NULL, 0, &txn), "begin");
    get_within(txn, number, value);
    put(txn, number, version, value, 0);
    check(mdb_txn_commit(txn), "commit");
}

static void load(void) {
    unsigned char *value = malloc(args.value_size + 8);
    for (uint64_t first = 0; first < args.rows; first += 100000) {
        MDB_txn *txn;
        check(mdb_txn_begin(env, NULL, 0, &txn), "begin");
        for (uint64_t i = first; i < first + 100000 && i < args.rows; i++) put(txn, i, 0, value, MDB_APPEND);
        check(mdb_txn_commit(txn), "commit");
    }
    free(value);
}

int main(int argc, char **argv) {
    parse(argc, argv);
    int loading = !strcmp(args.workload, "load");
    check(mdb_env_create(&env), "mdb_env_create");
    /* Address space, no memory: rows, three times over for the tree and what updates leave, and something to begin with. */
    check(mdb_env_set_mapsize(env, (args.rows * (args.value_size + 64) * 3 + (64u << 20)) & ~(size_t)4095), "map size");
    check(mdb_env_set_maxreaders(env, (unsigned)args.threads + 16), "readers");
    unsigned flags = MDB_NOTLS | (args.read_ahead ? 0 : MDB_NORDAHEAD) | (loading ? MDB_NOSYNC : 0);
    check(mdb_env_open(env, args.dir, flags, 0644), args.dir);
    MDB_txn *txn;
    check(mdb_txn_begin(env, NULL, loading ? 0 : MDB_RDONLY, &txn), "begin");
    check(mdb_dbi_open(txn, NULL, 0, &dbi), "open");
    check(mdb_txn_commit(txn), "commit");
    int major, minor, patch;
    char name[64];
    mdb_version(&major, &minor, &patch);
    snprintf(name, sizeof name, "lmdb %d.%d.%d", major, minor, patch);
    if (loading) {
        load();
        check(mdb_env_sync(env, 1), "sync");
        printf("{\"workload\":\"load\",\"driver\":\"%s\"}\n", name);
    } else {
        char settings[256];
        snprintf(settings, sizeof settings, "{\"read_ahead\":%s,\"page_size\":%ld,\"commit\":\"synchronous\"}",
                 args.read_ahead ? "true" : "false", sysconf(_SC_PAGESIZE));
        run(name, settings);
    }
    mdb_env_close(env);
    return 0;
}
