/* Berkeley DB 5.3, transactional, every commit synchronous.
 *
 * Settings: the given memory as the environment's cache (four fifths of it where that is below 500 MB, since Berkeley DB adds a quarter by
 * itself; log and lock regions are on top, as its documentation has it); DB_TXN_SYNC semantics (the default: the log is flushed at every
 * commit, group commit included); deadlocks found on every conflict and retried; B-tree with the given page size. Where rows are written, a
 * checkpoint whenever 64 MiB of log have been written, and dirty pages trickled so that evictions find clean ones: both in a thread of
 * their own, as the manual advises. Look-ups are without transaction (degree 2 isolation and locks as by default), as its examples have it.
 *
 * `--direct 1`: O_DIRECT for data pages, by DB_DIRECT_DB where the library was built with it. Debian's is not: there the functions by which
 * it opens, reads and writes are replaced, as it offers, and a page goes through an aligned buffer of the thread, which costs a copy.
 * `--direct 0`: the OS cache, within the cgroup, comes on top. */
#define _GNU_SOURCE
#include "common.h"
#include <db.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>

#define DATA "lab.db"
/* What direct I/O is aligned to, at most. */
#define BLOCK 4096
/* The longest piece that goes through the buffer at once. */
#define LONGEST (1 << 20)
#define FILES 1024
/* Bytes of a log file. */
#define LOG_FILE (64u << 20)

static DB_ENV *env;
static DB *db;
static const char *direct = "false";
static atomic_bool is_data[FILES];

static void check(int error, const char *what) {
    if (error) fail(what, db_strerror(error));
}

/* Aligned, of this thread. */
static unsigned char *buffer(void) {
    static _Thread_local unsigned char *mine;
    if (!mine && posix_memalign((void **)&mine, BLOCK, LONGEST + BLOCK)) fail("memory", "there is not enough");
    return mine;
}

static int open_file(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    size_t len = strlen(path), tail = strlen(DATA);
    int fd = open(path, flags, mode);
    if (fd >= FILES) fail(path, "too many files are open");
    if (fd >= 0) is_data[fd] = len >= tail && !strcmp(path + len - tail, DATA);
    return fd;
}

/* The file of data pages is opened without O_DIRECT, as the library reads its first bytes into memory that is not aligned. Of the rest, too, if it
 * gets less than it has asked for. */
static int is_direct(int fd, int wanted) {
    if (fd >= FILES || !is_data[fd]) return 0;
    int flags = fcntl(fd, F_GETFL);
    if (((flags & O_DIRECT) != 0) != wanted && fcntl(fd, F_SETFL, flags ^ O_DIRECT)) fail(DATA, strerror(errno));
    return wanted;
}

static ssize_t read_at(int fd, void *to, size_t len, off_t offset) {
    if (len > LONGEST || len % BLOCK || offset % BLOCK || !is_direct(fd, 1)) return pread(fd, to, len, offset);
    ssize_t got = pread(fd, buffer(), len, offset);
    if (got > 0) memcpy(to, buffer(), (size_t)got);
    if (got != (ssize_t)len) is_direct(fd, 0);
    return got;
}

static ssize_t write_at(int fd, const void *from, size_t len, off_t offset) {
    if (len > LONGEST || len % BLOCK || offset % BLOCK || !is_direct(fd, 1)) return pwrite(fd, from, len, offset);
    memcpy(buffer(), from, len);
    ssize_t put = pwrite(fd, buffer(), len, offset);
    if (put != (ssize_t)len) is_direct(fd, 0);
    return put;
}

static void go_direct(void) {
    env->set_errfile(env, NULL);
    int error = env->set_flags(env, DB_DIRECT_DB, 1);
    env->set_errfile(env, stderr);
    if (!error) {
        direct = "\"by the library\"";
        return;
    }
    check(db_env_set_func_open(open_file), "open");
    check(db_env_set_func_pread(read_at), "read");
    check(db_env_set_func_pwrite(write_at), "write");
    direct = "\"by functions given to the library\"";
}

static void open_all(int loading) {
    check(db_env_create(&env, 0), "db_env_create");
    uint64_t cache = args.memory < 500000000 ? args.memory / 5 * 4 : args.memory;
    check(env->set_cachesize(env, (u_int32_t)(cache >> 30), (u_int32_t)(cache & ((1u << 30) - 1)), 1),
          "cache size");
    if (args.direct && !loading) go_direct();
    check(env->set_lk_detect(env, DB_LOCK_DEFAULT), "deadlock detector");
    check(env->set_lg_bsize(env, 4u << 20), "log buffer");
    check(env->set_lg_max(env, LOG_FILE), "log file size");
    check(env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1), "log removal");
    check(env->set_lk_max_locks(env, 20000), "locks");
    check(env->set_lk_max_objects(env, 20000), "lock objects");
    u_int32_t flags = DB_CREATE | DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK | DB_THREAD | DB_RECOVER |
                      DB_PRIVATE;
    check(env->open(env, args.dir, flags, 0644), args.dir);
    check(db_create(&db, env, 0), "db_create");
    check(db->set_pagesize(db, (u_int32_t)args.page_size), "page size");
    check(db->open(db, NULL, DATA, NULL, DB_BTREE,
                   (loading ? DB_CREATE : 0) | DB_AUTO_COMMIT | DB_THREAD, 0644), DATA);
}

/* Writes a row with a value that is filled from this number. */
static int put(DB_TXN *txn, uint64_t row, uint64_t number, uint64_t version, unsigned char *value) {
    unsigned char key_bytes[8];
    make_key(row, key_bytes);
    make_value(number, version, value);
    DBT key = {0}, data = {0};
    key.data = key_bytes;
    key.size = 8;
    data.data = value;
    data.size = (u_int32_t)args.value_size;
    return db->put(db, txn, &key, &data, 0);
}

/* Puts a row's value into `value`; DB_RMW: to change it, as an update has to say whether the row was there. */
static int look_up(DB_TXN *txn, uint64_t row, unsigned char *value, u_int32_t flags) {
    unsigned char key_bytes[8];
    make_key(row, key_bytes);
    DBT key = {0}, data = {0};
    key.data = key_bytes;
    key.size = 8;
    data.data = value;
    data.ulen = (u_int32_t)args.value_size + 8;
    data.flags = DB_DBT_USERMEM;
    int error = db->get(db, txn, &key, &data, flags);
    if (!error && data.size != args.value_size) fail("get", "a value of another length");
    return error;
}

static void *open_session(void) { return NULL; }

static void get(void *session, uint64_t number, unsigned char *value) {
    (void)session;
    check(look_up(NULL, number, value, 0), "get");
}

/* Berkeley DB has no look-up of many keys: they go one after the other. */
static void multi_get(void *session, const uint64_t *numbers, size_t count, unsigned char *value) {
    for (size_t i = 0; i < count; i++) get(session, numbers[i], value);
}

/* Writes a row anew: with its own number, or with what a thread has counted. */
static void change(uint64_t row, uint64_t number, uint64_t version, unsigned char *value) {
    for (;;) {
        DB_TXN *txn;
        check(env->txn_begin(env, NULL, &txn, 0), "begin");
        int error = look_up(txn, row, value, DB_RMW);
        if (!error) error = put(txn, row, number, version, value);
        if (!error) {
            check(txn->commit(txn, DB_TXN_SYNC), "commit");
            return;
        }
        check(txn->abort(txn), "abort");
        /* EAGAIN: no buffer could be had of the cache at that moment. */
        if (error != DB_LOCK_DEADLOCK && error != DB_LOCK_NOTGRANTED && error != EAGAIN) check(error, "put");
    }
}

static void update(void *session, uint64_t number, uint64_t version, unsigned char *value) {
    (void)session;
    change(number, number, version, value);
}

static void load(void) {
    unsigned char *value = malloc(args.value_size + 8);
    for (uint64_t first = 0; first < args.rows; first += 1000) {
        DB_TXN *txn;
        check(env->txn_begin(env, NULL, &txn, 0), "begin");
        for (uint64_t i = first; i < first + 1000 && i < args.rows; i++) check(put(txn, i, i, 0, value), "put");
        check(txn->commit(txn, DB_TXN_NOSYNC), "commit");
        if (first % 200000 == 0) check(env->txn_checkpoint(env, 65536, 0, 0), "checkpoint");
    }
    free(value);
}

/* Writes dirty pages home, and makes checkpoints where `checkpoints` is not null. */
static void *trickle(void *checkpoints) {
    while (phase < 2) {
        int written;
        check(env->memp_trickle(env, 30, &written), "trickle");
        if (checkpoints) check(env->txn_checkpoint(env, 65536, 0, 0), "checkpoint");
        usleep(100000);
    }
    return NULL;
}

/* What a life that dies says of its log: what a start has to go through. Log files do not say: they are as long from the first as they may get. */
#define LOG_BYTES "log-bytes"
/* Of so many operations, one counts. */
#define COUNTS_EACH 4

static uint64_t begun;
static double since_begin(void) { return (double)(now_ns() - begun) / 1e9; }

static FILE *kept(const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/" LOG_BYTES, args.dir);
    return fopen(path, mode);
}

static uint64_t kept_log_bytes(void) {
    unsigned long long bytes = 0;
    FILE *file = kept("r");
    if (!file) return 0;
    if (fscanf(file, "%llu", &bytes) != 1) fail(LOG_BYTES, "no number");
    fclose(file);
    return bytes;
}

static void keep_log_bytes(uint64_t bytes) {
    FILE *file = kept("w");
    if (!file || fprintf(file, "%llu\n", (unsigned long long)bytes) < 0 || fclose(file)) fail(LOG_BYTES, strerror(errno));
}

/* Bytes of log since the last checkpoint. */
static uint64_t log_bytes(void) {
    DB_LOG_STAT *stat;
    check(env->log_stat(env, &stat, 0), "log_stat");
    uint64_t bytes = ((uint64_t)stat->st_wc_mbytes << 20) + stat->st_wc_bytes;
    free(stat);
    return bytes;
}

static uint64_t number_of(uint64_t row, unsigned char *value) {
    uint64_t number;
    get(NULL, row, value);
    memcpy(&number, value, sizeof number);
    return number;
}

/* What each thread has counted and was told is committed. */
static atomic_ullong *told;

static void *live_worker(void *argument) {
    uint64_t thread = (uint64_t)(uintptr_t)argument, state = (args.seed * 1000003 + thread) * 1000003;
    unsigned char *value = malloc(args.value_size + 8);
    for (uint64_t call = 1; phase < 2; call++) {
        uint64_t start = now_ns();
        if (call % COUNTS_EACH == 0) {
            uint64_t next = told[thread] + 1;
            change(args.rows + thread, next, call, value);
            told[thread] = next;
        } else {
            uint64_t row = below(&state, args.rows);
            change(row, row, call, value);
        }
        record(now_ns() - start);
    }
    free(value);
    return NULL;
}

static void print_told(void) {
    printf("[");
    for (uint64_t i = 0; i < args.threads; i++) printf("%s%llu", i ? "," : "", (unsigned long long)told[i]);
    printf("]");
}

static void work(int dies) {
    double opened = since_begin();
    pthread_t *threads = calloc(args.threads, sizeof *threads), trickles;
    size_t room = 1024, count = 1;
    double *at = calloc(room, sizeof *at);
    uint64_t *done = calloc(room, sizeof *done), before = 0, loaded = now_ns();
    at[0] = opened;
    pthread_create(&trickles, NULL, trickle, NULL);
    for (uint64_t i = 0; i < args.threads; i++) pthread_create(&threads[i], NULL, live_worker, (void *)(uintptr_t)i);
    while ((double)(now_ns() - loaded) / 1e9 < (double)args.seconds || (dies && log_bytes() < args.log)) {
        usleep(100000);
        if (count == room) {
            room *= 2;
            at = realloc(at, room * sizeof *at);
            done = realloc(done, room * sizeof *done);
        }
        uint64_t now = operations;
        at[count] = since_begin();
        done[count++] = now - before;
        before = now;
    }
    uint64_t bytes = log_bytes();
    if (dies) {
        keep_log_bytes(bytes);
    } else {
        phase = 2;
        for (uint64_t i = 0; i < args.threads; i++) pthread_join(threads[i], NULL);
        pthread_join(trickles, NULL);
    }
    printf("{\"event\":\"end\",\"log_bytes\":%llu,\"redo_seconds\":%.6f,\"restart\":null,\"samples\":[", (unsigned long long)bytes,
           opened);
    for (size_t i = 0; i < count; i++) printf("%s[%.6f,%llu]", i ? "," : "", at[i], (unsigned long long)done[i]);
    printf("],\"latency_us\":");
    print_latency();
    printf(",\"told\":");
    print_told();
    printf("}\n");
    fflush(stdout);
    /* Its threads are at work: what a crash is. */
    if (dies) kill(getpid(), SIGKILL);
    free(threads);
    free(at);
    free(done);
}

/* What it is set to, once it is open. */
static const char *settings(const char *checkpoint) {
    static char text[320];
    snprintf(text, sizeof text,
             "{\"memory_bytes\":%llu,\"page_size\":%llu,\"direct\":%s,\"commit\":\"DB_TXN_SYNC\",\"checkpoint\":\"%s\","
             "\"trickle_percent\":30}",
             (unsigned long long)args.memory, (unsigned long long)args.page_size, direct, checkpoint);
    return text;
}

/* Opens what a kill has left, by which it is recovered; says when the first commit is there; and works, rests, or dies. There is no checkpoint
 * meanwhile, so that the log of a life that dies is all to be gone through. */
static void live(const char *name) {
    if (!args.purpose) fail("--purpose", "is missing");
    int dies = !strcmp(args.purpose, "die"), rests = !strcmp(args.purpose, "rest");
    if (!dies && !rests && strcmp(args.purpose, "work")) fail(args.purpose, "there is no such purpose");
    open_all(0);
    unsigned char *value = malloc(args.value_size + 8);
    uint64_t state = args.seed, row = below(&state, args.rows);
    change(row, row, 1, value);
    double first_commit = since_begin();
    told = calloc(args.threads, sizeof *told);
    for (uint64_t i = 0; i < args.threads; i++) told[i] = number_of(args.rows + i, value);
    printf("{\"event\":\"open\",\"first_commit_seconds\":%.6f,\"settings\":%s,\"driver\":\"%s\",\"counted\":", first_commit,
           settings("when it is closed"), name);
    print_told();
    printf("}\n");
    fflush(stdout);
    if (rests) {
        /* A start that was broken off may have gone through a part of it, and not said so: there is no less to be gone through. */
        printf("{\"event\":\"end\",\"redo_seconds\":%.6f,\"watched_seconds\":%.6f,\"restart\":null,\"log_bytes\":%llu}\n", first_commit,
               since_begin(), (unsigned long long)kept_log_bytes());
        fflush(stdout);
    } else {
        work(dies);
    }
    free(value);
}

static void close_all(void) {
    check(env->txn_checkpoint(env, 0, 0, DB_FORCE), "checkpoint");
    check(db->close(db, 0), "close");
    check(env->close(env, 0), "close");
}

int main(int argc, char **argv) {
    begun = now_ns();
    parse(argc, argv);
    int major, minor, patch;
    char name[64];
    db_version(&major, &minor, &patch);
    snprintf(name, sizeof name, "berkeley db %d.%d.%d", major, minor, patch);
    if (!strcmp(args.workload, "live")) {
        live(name);
        uint64_t closing = now_ns();
        close_all();
        printf("{\"event\":\"closed\",\"seconds\":%.6f}\n", (double)(now_ns() - closing) / 1e9);
        return 0;
    }
    int loading = !strcmp(args.workload, "load"), writes = !strcmp(args.workload, "updates");
    open_all(loading);
    const char *set = settings("64 MiB of log");
    if (loading) {
        load();
        close_all();
        printf("{\"workload\":\"load\",\"driver\":\"%s\",\"settings\":%s}\n", name, set);
        return 0;
    }
    pthread_t thread;
    if (writes) pthread_create(&thread, NULL, trickle, env);
    run(name, set);
    if (writes) pthread_join(thread, NULL);
    close_all();
    return 0;
}
