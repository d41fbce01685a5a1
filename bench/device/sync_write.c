/* The device's synchronous write: 4 KiB blocks, one after the other over a file that is allocated and written already,
 * O_DIRECT with RWF_DSYNC. What a commit of one block cannot be faster than.
 *
 *   sync_write FILE SECONDS      prints one JSON line */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 4096
#define MOST 4000000

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: sync_write FILE SECONDS\n"), 2;
    void *block;
    if (posix_memalign(&block, BLOCK, 64 * BLOCK)) return 1;
    memset(block, 0x5A, 64 * BLOCK);
    int file = open(argv[1], O_RDWR | O_CREAT | O_DIRECT, 0644);
    if (file < 0) return perror(argv[1]), 1;
    for (int i = 0; i < BLOCKS; i += 64)
        if (pwrite(file, block, 64 * BLOCK, (off_t)i * BLOCK) != 64 * BLOCK) return perror("write"), 1;
    if (fsync(file)) return perror("fsync"), 1;
    float *latencies = malloc(sizeof(float) * MOST);
    size_t count = 0;
    double end = now() + atof(argv[2]);
    struct iovec slice = {block, BLOCK};
    for (double start = now(); start < end && count < MOST; count++) {
        if (pwritev2(file, &slice, 1, (off_t)(count % BLOCKS) * BLOCK, RWF_DSYNC) != BLOCK) return perror("write"), 1;
        double after = now();
        latencies[count] = (float)((after - start) * 1e6);
        start = after;
    }
    qsort(latencies, count, sizeof *latencies, ascending);
    printf("{\"workload\":\"sync_write\",\"writes\":%zu,\"latency_us\":{\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f}}\n",
           count, latencies[count / 2], latencies[count * 99 / 100], latencies[count * 999 / 1000]);
    free(latencies);
    unlink(argv[1]);
    return 0;
}
