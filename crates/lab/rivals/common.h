/* What the rivals' programs share: arguments, the laboratory's rows, threads that work for a while, one JSON line.
 *
 *   PROGRAM load|lookups|multiget|updates --dir DIR [--memory BYTES] [--rows N] [--value-size BYTES] [--page-size BYTES]
 *           [--threads T] [--seconds S] [--warm-up S] [--warm-up-threads T] [--batch N] [--seed N] [--direct 0|1] [--read-ahead 0|1] [--blind 0|1]
 *   PROGRAM live --purpose work|die|rest --log BYTES ...      a life as crates/lab/src/restart/life.rs has them, where a program has that
 *
 * Keys are row numbers in eight big-endian bytes, values are filled from the number and a version, as in
 * crates/lab/src/driver.rs. What is printed has the names that crates/lab/src/run.rs prints.
 *
 * A program supplies `open_session`, `get`, `multi_get` and `update`; each thread has a session. */
#ifndef GANNET_LAB_COMMON_H
#define GANNET_LAB_COMMON_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct arguments {
    const char *workload, *dir, *purpose;
    uint64_t memory, rows, value_size, page_size, threads, seconds, warm_up, batch, seed, direct, read_ahead, blind, log, warm_up_threads;
};

static struct arguments args = {NULL, NULL, NULL, 256u << 20, 1000000, 192, 8192, 16, 10, 2, 256, 1, 1, 1, 0, 192u << 20, 0};

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void parse(int argc, char **argv) {
    const struct {
        const char *name;
        uint64_t *place;
    } numbers[] = {{"--memory", &args.memory},         {"--rows", &args.rows},       {"--value-size", &args.value_size},
                   {"--page-size", &args.page_size},   {"--threads", &args.threads}, {"--seconds", &args.seconds},
                   {"--warm-up", &args.warm_up},       {"--batch", &args.batch},     {"--seed", &args.seed},
                   {"--direct", &args.direct},         {"--blind", &args.blind},     {"--read-ahead", &args.read_ahead},
                   {"--log", &args.log},               {"--warm-up-threads", &args.warm_up_threads}};
    if (argc < 2) fail(argv[0], "expected a workload and options");
    args.workload = argv[1];
    for (int i = 2; i < argc; i += 2) {
        const char *name = argv[i], *text = i + 1 < argc ? argv[i + 1] : NULL;
        if (!text) fail(name, "its value is missing");
        if (!strcmp(name, "--dir") || !strcmp(name, "--purpose")) {
            *(name[2] == 'd' ? &args.dir : &args.purpose) = text;
            continue;
        }
        size_t at = 0, count = sizeof numbers / sizeof *numbers;
        while (at < count && strcmp(name, numbers[at].name)) at++;
        if (at == count) fail(name, "there is no such option");
        char *end;
        *numbers[at].place = strtoull(text, &end, 10);
        if (!*text || *end) fail(name, "its value is no whole number");
    }
    if (!args.dir) fail("--dir", "is missing");
    if (mkdir(args.dir, 0755) && errno != EEXIST) fail(args.dir, strerror(errno));
    if (!args.rows || !args.threads || !args.batch) fail("--rows, --threads, --batch", "are 1 at least");
}

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static uint64_t next_random(uint64_t *state) { return mix(*state += 0x9E3779B97F4A7C15ull); }

static uint64_t below(uint64_t *state, uint64_t bound) {
    return (uint64_t)(((unsigned __int128)next_random(state) * bound) >> 64);
}

static void make_key(uint64_t number, unsigned char key[8]) {
    for (int i = 0; i < 8; i++) key[i] = (unsigned char)(number >> (56 - 8 * i));
}

static void make_value(uint64_t number, uint64_t version, unsigned char *value) {
    uint64_t state = (number ^ (version << 32 | version >> 32)) * 0x9E3779B97F4A7C15ull;
    size_t at = args.value_size < 8 ? args.value_size : 8;
    memcpy(value, &number, at);
    while (at < args.value_size) {
        uint64_t word = next_random(&state);
        size_t rest = args.value_size - at, take = rest < 8 ? rest : 8;
        memcpy(value + at, &word, take);
        at += take;
    }
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* The buckets of crates/lab/src/histogram.rs, 64 for every power of two: what is rounded is rounded alike for everybody. */
#define STEP_BITS 6
#define STEPS (1u << STEP_BITS)
#define BUCKETS (STEPS * 40)

/* What a thread has recorded. Nobody else writes there, so that no thread waits for another one's counting; it is atomic as a life that dies is
 * looked at while its threads are at work. They are merged when they are printed, as the Rust driver does it. */
struct histogram {
    atomic_ullong buckets[BUCKETS], sum_ns, max_ns;
    struct histogram *next;
};
static _Atomic(struct histogram *) histograms;
static _Thread_local struct histogram *own;

static atomic_ullong operations; /* of all threads, as the Rust driver counts them */
static atomic_int phase; /* 0 warming up, 1 measuring, 2 ended */

static unsigned bucket_of(uint64_t ns) {
    if (ns < STEPS) return (unsigned)ns;
    unsigned power = 63 - (unsigned)__builtin_clzll(ns);
    unsigned bucket = (power - STEP_BITS + 1) * STEPS + (unsigned)((ns >> (power - STEP_BITS)) - STEPS);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The largest duration that a bucket holds. */
static uint64_t upper_ns(unsigned bucket) {
    if (bucket < STEPS) return bucket;
    return (((uint64_t)(bucket % STEPS) + STEPS + 1) << (bucket / STEPS - 1)) - 1;
}

static uint64_t get_relaxed(atomic_ullong *place) { return atomic_load_explicit(place, memory_order_relaxed); }
static void set_relaxed(atomic_ullong *place, uint64_t value) { atomic_store_explicit(place, value, memory_order_relaxed); }

/* Adds an operation that took so long. */
static void record(uint64_t ns) {
    if (!own) {
        own = calloc(1, sizeof *own);
        if (!own) fail("memory", "there is not enough");
        own->next = histograms;
        while (!atomic_compare_exchange_weak(&histograms, &own->next, own)) continue;
    }
    atomic_ullong *bucket = &own->buckets[bucket_of(ns)];
    set_relaxed(bucket, get_relaxed(bucket) + 1);
    set_relaxed(&own->sum_ns, get_relaxed(&own->sum_ns) + ns);
    if (ns > get_relaxed(&own->max_ns)) set_relaxed(&own->max_ns, ns);
    atomic_fetch_add_explicit(&operations, 1, memory_order_relaxed);
}

/* What all threads have recorded together. */
struct merged {
    uint64_t buckets[BUCKETS], count, sum_ns, max_ns;
};

static void merge(struct merged *all) {
    memset(all, 0, sizeof *all);
    for (struct histogram *one = histograms; one; one = one->next) {
        for (unsigned i = 0; i < BUCKETS; i++) {
            uint64_t times = get_relaxed(&one->buckets[i]);
            all->buckets[i] += times;
            all->count += times;
        }
        all->sum_ns += get_relaxed(&one->sum_ns);
        uint64_t longest = get_relaxed(&one->max_ns);
        if (longest > all->max_ns) all->max_ns = longest;
    }
}

static double quantile_us(const struct merged *all, double share) {
    uint64_t seen = 0;
    double exact = (double)all->count * share;
    uint64_t wanted = (uint64_t)exact;
    if ((double)wanted < exact || !wanted) wanted++;
    for (unsigned i = 0; i < BUCKETS; i++)
        if ((seen += all->buckets[i]) >= wanted)
            return (double)(upper_ns(i) < all->max_ns ? upper_ns(i) : all->max_ns) / 1000.0;
    return 0;
}

/* Percentiles, mean and all buckets as [upper bound in microseconds, operations]; all that has been recorded is there once nobody records any more. */
static void print_latency(void) {
    static struct merged all;
    merge(&all);
    printf("{\"count\":%llu,\"mean\":%.3f,\"p50\":%.3f,\"p95\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f,\"buckets\":[",
           (unsigned long long)all.count, all.count ? (double)all.sum_ns / (double)all.count / 1000.0 : 0.0, quantile_us(&all, 0.5),
           quantile_us(&all, 0.95), quantile_us(&all, 0.99), quantile_us(&all, 0.999), (double)all.max_ns / 1000.0);
    const char *between = "";
    for (unsigned i = 0; i < BUCKETS; i++)
        if (all.buckets[i]) {
            printf("%s[%.3f,%llu]", between, (double)upper_ns(i) / 1000.0, (unsigned long long)all.buckets[i]);
            between = ",";
        }
    printf("]}");
}

/* A thread's view of the store. */
static void *open_session(void);
/* Looks a row up that is there, and gets hold of all its bytes. `value` has room for it. */
static void get(void *session, uint64_t number, unsigned char *value);
/* Looks so many rows up that are there. */
static void multi_get(void *session, const uint64_t *numbers, size_t count, unsigned char *value);
/* Changes a row in a synchronous transaction. */
static void update(void *session, uint64_t number, uint64_t version, unsigned char *value);

static void *worker(void *argument) {
    uint64_t number = (uint64_t)(uintptr_t)argument, state = (args.seed * 1000003 + number) * 1000003;
    int looks = !strcmp(args.workload, "lookups"), batches = !strcmp(args.workload, "multiget");
    unsigned char *value = malloc(args.value_size + 8);
    uint64_t *numbers = calloc(args.batch, sizeof *numbers);
    void *session = open_session();
    if (!value || !numbers) fail("memory", "there is not enough");
    for (uint64_t calls = 1; phase < 2; calls++) {
        int measuring = phase == 1;
        /* One of those that only help to fill caches. */
        if (measuring && number >= args.threads) break;
        for (uint64_t i = 0; batches && i < args.batch; i++) numbers[i] = below(&state, args.rows);
        uint64_t start = now_ns();
        if (looks) get(session, below(&state, args.rows), value);
        else if (batches) multi_get(session, numbers, args.batch, value);
        else update(session, below(&state, args.rows), calls, value);
        if (measuring) record(now_ns() - start);
    }
    free(numbers);
    free(value);
    return NULL;
}

/* The value of a `Name: number` line of a file below /proc. */
static uint64_t proc_number(const char *path, const char *name) {
    char line[256];
    uint64_t number = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) number = strtoull(line + strlen(name) + 1, NULL, 10);
    if (file) fclose(file);
    return number;
}

/* Whether the workload is one that goes on for a while. */
static int is_timed(void) {
    return !strcmp(args.workload, "lookups") || !strcmp(args.workload, "multiget") || !strcmp(args.workload, "updates");
}

/* Lets threads work, and prints what came of it. */
static void run(const char *driver, const char *settings) {
    if (!is_timed()) fail(args.workload, "there is no such workload");
    uint64_t count = args.warm_up_threads > args.threads ? args.warm_up_threads : args.threads;
    pthread_t *threads = calloc(count, sizeof *threads);
    for (uint64_t i = 0; i < count; i++) pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)i);
    sleep((unsigned)args.warm_up);
    uint64_t start = now_ns(), read_before = proc_number("/proc/self/io", "read_bytes");
    phase = 1;
    uint64_t *per_second = calloc(args.seconds + 1, sizeof *per_second), before = 0;
    for (uint64_t i = 0; i < args.seconds; i++) {
        sleep(1);
        uint64_t done = operations;
        per_second[i] = done - before;
        before = done;
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    uint64_t done = operations, read_bytes = proc_number("/proc/self/io", "read_bytes") - read_before;
    phase = 2;
    for (uint64_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("{\"workload\":\"%s\",\"driver\":\"%s\",\"settings\":%s,\"rows\":%llu,\"value_bytes\":%llu,"
           "\"plan\":{\"threads\":%llu,\"seconds\":%llu},\"measured\":{\"operations\":%llu,\"seconds\":%.3f,"
           "\"per_second_mean\":%.1f,\"latency_us\":",
           args.workload, driver, settings, (unsigned long long)args.rows, (unsigned long long)args.value_size,
           (unsigned long long)args.threads, (unsigned long long)args.seconds, (unsigned long long)done, seconds,
           (double)done / seconds);
    print_latency();
    printf(",\"device\":{\"read_bytes\":%llu,\"read_bytes_per_second\":%.1f},\"interval_seconds\":1.0,\"per_interval\":[",
           (unsigned long long)read_bytes, (double)read_bytes / seconds);
    for (uint64_t i = 0; i < args.seconds; i++) printf("%s%llu", i ? "," : "", (unsigned long long)per_second[i]);
    printf("]},\"memory\":{\"peak_resident_bytes\":%llu}}\n",
           (unsigned long long)proc_number("/proc/self/status", "VmHWM") * 1024);
    free(per_second);
    free(threads);
}

#endif
