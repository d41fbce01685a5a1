/* Berkeley DB 5.3, transactional, every commit synchronous.
 *
 * Settings: the given memory as the environment's cache (four fifths of it where that is below 500 MB, since Berkeley DB
 * adds a quarter by itself; log and lock regions are on top, as its documentation has it); direct I/O for data pages where the library was built with it (Debian's is not: there the OS cache within the cgroup
 * comes on top, which helps it); DB_TXN_SYNC semantics (the default: the log is flushed at
 * every commit, group commit included); deadlocks found on every conflict and retried; B-tree with the given page size;
 * a checkpoint whenever 64 MiB of log have been written, and dirty pages trickled so that evictions find clean ones:
 * both in a thread of their own, as the manual advises. */
#include "common.h"
#include <db.h>
#include <errno.h>

static DB_ENV *env;
static DB *db;
static int direct;

static void check(int error, const char *what) {
    if (error) fail(what, db_strerror(error));
}

static void open_all(int loading) {
    check(db_env_create(&env, 0), "db_env_create");
    uint64_t cache = args.memory < 500000000 ? args.memory / 5 * 4 : args.memory;
    check(env->set_cachesize(env, (u_int32_t)(cache >> 30), (u_int32_t)(cache & ((1u << 30) - 1)), 1),
          "cache size");
    direct = env->set_flags(env, DB_DIRECT_DB, 1) == 0;
    check(env->set_lk_detect(env, DB_LOCK_DEFAULT), "deadlock detector");
    check(env->set_lg_bsize(env, 4u << 20), "log buffer");
    check(env->set_lg_max(env, 64u << 20), "log file size");
    check(env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1), "log removal");
    check(env->set_lk_max_locks(env, 20000), "locks");
    check(env->set_lk_max_objects(env, 20000), "lock objects");
    u_int32_t flags = DB_CREATE | DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK | DB_THREAD | DB_RECOVER |
                      DB_PRIVATE;
    check(env->open(env, args.dir, flags, 0644), args.dir);
    check(db_create(&db, env, 0), "db_create");
    check(db->set_pagesize(db, (u_int32_t)args.page_size), "page size");
    check(db->open(db, NULL, "lab.db", NULL, DB_BTREE,
                   (loading ? DB_CREATE : 0) | DB_AUTO_COMMIT | DB_THREAD, 0644), "lab.db");
}

static void put(DB_TXN *txn, uint64_t number, uint64_t version, unsigned char *value, int *error) {
    unsigned char key_bytes[8];
    make_key(number, key_bytes);
    make_value(number, version, value);
    DBT key = {0}, data = {0};
    key.data = key_bytes;
    key.size = 8;
    data.data = value;
    data.size = (u_int32_t)args.value_size;
    *error = db->put(db, txn, &key, &data, 0);
}

/* Looks the row up for change: an update has to say whether the row was there. */
static int row_is_there(DB_TXN *txn, uint64_t number, unsigned char *value) {
    unsigned char key_bytes[8];
    make_key(number, key_bytes);
    DBT key = {0}, data = {0};
    key.data = key_bytes;
    key.size = 8;
    data.data = value;
    data.ulen = (u_int32_t)args.value_size + 8;
    data.flags = DB_DBT_USERMEM;
    return db->get(db, txn, &key, &data, DB_RMW);
}

static void *open_session(void) { return NULL; }

static void update(void *session, uint64_t number, uint64_t version, unsigned char *value) {
    (void)session;
    for (;;) {
        DB_TXN *txn;
        int error;
        check(env->txn_begin(env, NULL, &txn, 0), "begin");
        error = row_is_there(txn, number, value);
        if (!error) put(txn, number, version, value, &error);
        if (!error) {
            check(txn->commit(txn, DB_TXN_SYNC), "commit");
            return;
        }
        check(txn->abort(txn), "abort");
        if (error != DB_LOCK_DEADLOCK && error != DB_LOCK_NOTGRANTED) check(error, "put");
    }
}

static void load(void) {
    unsigned char *value = malloc(args.value_size + 8);
    for (uint64_t first = 0; first < args.rows; first += 1000) {
        DB_TXN *txn;
        check(env->txn_begin(env, NULL, &txn, 0), "begin");
        for (uint64_t i = first; i < first + 1000 && i < args.rows; i++) {
            int error;
            put(txn, i, 0, value, &error);
            check(error, "put");
        }
        check(txn->commit(txn, DB_TXN_NOSYNC), "commit");
        if (first % 200000 == 0) check(env->txn_checkpoint(env, 65536, 0, 0), "checkpoint");
    }
    free(value);
}

static void *upkeep(void *unused) {
    while (phase < 2) {
        int written;
        check(env->memp_trickle(env, 30, &written), "trickle");
        check(env->txn_checkpoint(env, 65536, 0, 0), "checkpoint");
        usleep(100000);
    }
    return unused;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    int loading = !strcmp(args.workload, "load");
    open_all(loading);
    if (loading) {
        load();
        printf("{\"workload\":\"load\",\"driver\":\"berkeley db\"}\n");
    } else if (!strcmp(args.workload, "updates")) {
        pthread_t thread;
        pthread_create(&thread, NULL, upkeep, NULL);
        char settings[256];
        snprintf(settings, sizeof settings,
                 "{\"memory_bytes\":%llu,\"page_size\":%llu,\"direct\":%s,\"commit\":\"DB_TXN_SYNC\","
                 "\"checkpoint\":\"64 MiB of log\",\"trickle_percent\":30}",
                 (unsigned long long)args.memory, (unsigned long long)args.page_size, direct ? "true" : "false");
        run_updates("berkeley db " DB_VERSION_STRING, settings);
        pthread_join(thread, NULL);
    } else {
        fail(args.workload, "there is no such workload");
    }
    check(env->txn_checkpoint(env, 0, 0, DB_FORCE), "checkpoint");
    check(db->close(db, 0), "close");
    check(env->close(env, 0), "close");
    return 0;
}
