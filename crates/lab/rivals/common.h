/* What the rivals' programs share: arguments, the laboratory's rows, latency histograms, one JSON line.
 *
 *   PROGRAM load|updates --dir DIR --memory BYTES --rows N --value-size BYTES --page-size BYTES --threads T --seconds S
 *                        --warm-up S [--blind 1]
 *
 * Keys are row numbers in eight big-endian bytes, values are filled from the number and a version, as in
 * crates/lab/src/driver.rs. */
#ifndef GANNET_BENCH_COMMON_H
#define GANNET_BENCH_COMMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct arguments {
    const char *workload, *dir;
    uint64_t memory, rows, value_size, page_size, threads, seconds, warm_up, blind;
};

static struct arguments args = {NULL, NULL, 256u << 20, 1000000, 192, 8192, 16, 10, 2, 0};

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void parse(int argc, char **argv) {
    if (argc < 2) fail(argv[0], "expected `load` or `updates` and options");
    args.workload = argv[1];
    for (int i = 2; i < argc; i += 2) {
        const char *name = argv[i], *text = i + 1 < argc ? argv[i + 1] : NULL;
        if (!text) fail(name, "its value is missing");
        if (!strcmp(name, "--dir")) args.dir = text;
        else if (!strcmp(name, "--memory")) args.memory = strtoull(text, NULL, 10);
        else if (!strcmp(name, "--rows")) args.rows = strtoull(text, NULL, 10);
        else if (!strcmp(name, "--value-size")) args.value_size = strtoull(text, NULL, 10);
        else if (!strcmp(name, "--page-size")) args.page_size = strtoull(text, NULL, 10);
        else if (!strcmp(name, "--threads")) args.threads = strtoull(text, NULL, 10);
        else if (!strcmp(name, "--seconds")) args.seconds = strtoull(text, NULL, 10);
        else if (!strcmp(name, "--warm-up")) args.warm_up = strtoull(text, NULL, 10);
        else if (!strcmp(name, "--blind")) args.blind = strtoull(text, NULL, 10);
        else fail(name, "there is no such option");
    }
    if (!args.dir) fail("--dir", "is missing");
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

/* Eight steps per power of two, interpolated by nothing: percentiles are within 9 %. */
#define BUCKETS 512
static atomic_ullong buckets[BUCKETS];
static atomic_ullong operations;
static atomic_int phase; /* 0 warming up, 1 measuring, 2 ended */

static unsigned bucket_of(uint64_t ns) {
    if (ns < 8) return (unsigned)ns;
    unsigned power = 63 - (unsigned)__builtin_clzll(ns);
    return (power - 2) * 8 + (unsigned)((ns >> (power - 3)) & 7);
}

static double bucket_us(unsigned bucket) {
    if (bucket < 8) return bucket / 1000.0;
    return (double)((((uint64_t)(bucket % 8) + 9) << (bucket / 8 - 1)) - 1) / 1000.0;
}

static double quantile_us(double share) {
    uint64_t wanted = (uint64_t)((double)operations * share), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++)
        if ((seen += buckets[i]) > wanted) return bucket_us(i);
    return 0;
}

/* One update of a random row in a synchronous transaction; supplied by each program. */
static void update(void *session, uint64_t number, uint64_t version, unsigned char *value);
static void *open_session(void);

static void *worker(void *argument) {
    uint64_t state = ((uint64_t)(uintptr_t)argument + 1) * 1000003;
    unsigned char *value = malloc(args.value_size + 8);
    void *session = open_session();
    for (uint64_t calls = 1; phase < 2; calls++) {
        int measuring = phase == 1;
        uint64_t start = now_ns();
        update(session, below(&state, args.rows), calls, value);
        if (measuring) {
            buckets[bucket_of(now_ns() - start)]++;
            operations++;
        }
    }
    free(value);
    return NULL;
}

/* The value of a `Name: number kB` line of /proc/self/status, in bytes. */
static uint64_t status_bytes(const char *name) {
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) kib = strtoull(line + strlen(name) + 1, NULL, 10);
    if (file) fclose(file);
    return kib * 1024;
}

static void run_updates(const char *driver, const char *settings) {
    pthread_t *threads = calloc(args.threads, sizeof *threads);
    for (uint64_t i = 0; i < args.threads; i++) pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)i);
    sleep((unsigned)args.warm_up);
    uint64_t start = now_ns();
    phase = 1;
    uint64_t *per_second = calloc(args.seconds, sizeof *per_second), before = 0;
    for (uint64_t i = 0; i < args.seconds; i++) {
        sleep(1);
        uint64_t done = operations;
        per_second[i] = done - before;
        before = done;
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    uint64_t done = operations;
    phase = 2;
    for (uint64_t i = 0; i < args.threads; i++) pthread_join(threads[i], NULL);
    printf("{\"workload\":\"updates\",\"driver\":\"%s\",\"settings\":%s,\"rows\":%llu,\"value_bytes\":%llu,"
           "\"plan\":{\"threads\":%llu,\"seconds\":%llu},\"measured\":{\"operations\":%llu,\"seconds\":%.3f,"
           "\"per_second_mean\":%.1f,\"latency_us\":{\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f},\"per_second\":[",
           driver, settings, (unsigned long long)args.rows, (unsigned long long)args.value_size,
           (unsigned long long)args.threads, (unsigned long long)args.seconds, (unsigned long long)done, seconds,
           (double)done / seconds, quantile_us(0.5), quantile_us(0.99), quantile_us(0.999));
    for (uint64_t i = 0; i < args.seconds; i++) printf("%s%llu", i ? "," : "", (unsigned long long)per_second[i]);
    printf("]},\"memory\":{\"peak_resident_bytes\":%llu}}\n", (unsigned long long)status_bytes("VmHWM"));
    free(per_second);
    free(threads);
}

#endif
