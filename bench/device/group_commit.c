/* Group commit with nothing around it: threads that do no work of their own, append nothing, and share synchronous writes of
 * one 4 KiB block, O_DIRECT with RWF_DSYNC. What group commit reaches on this machine, with a database that costs nothing.
 *
 *   group_commit FILE THREADS SECONDS FLIGHTS LEAST FIRST     prints one JSON line
 *
 * Up to FLIGHTS writes are at the device at one time; one beside others begins only when LEAST threads wait for it, one alone when FIRST
 * do: with FIRST = THREADS, it is gathered until all have come again. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 4096
#define THREADS_MOST 256

enum { WAITING, COVERED, LEAD };

/* On a cache line of its own. */
struct thread {
    _Alignas(64) _Atomic uint32_t state;
    uint64_t commits;
};

static struct thread threads[THREADS_MOST];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pending[THREADS_MOST], pending_count, flying; /* under the mutex, as are the states and next_block */
static int flights_most, least, first, file;
static uint64_t next_block;
static _Atomic int stop;
static void *block;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t sleep_until_woken(struct thread *me) {
    uint32_t state;
    while ((state = atomic_load(&me->state)) == WAITING)
        syscall(SYS_futex, &me->state, FUTEX_WAIT_PRIVATE, WAITING, NULL, NULL, 0);
    return state;
}

static void wake(struct thread *who) { syscall(SYS_futex, &who->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

static int may_start(void) {
    return pending_count > 0 && flying < flights_most && pending_count >= (flying == 0 ? first : least);
}

/* Writes for all who wait, and wakes them. Called with the mutex, returns with it. */
static void write_for_all(const struct thread *self) {
    int group[THREADS_MOST], count = pending_count;
    memcpy(group, pending, sizeof *group * (size_t)count);
    pending_count = 0;
    flying++;
    uint64_t at = next_block++ % BLOCKS;
    pthread_mutex_unlock(&mutex);
    struct iovec slice = {block, BLOCK};
    if (pwritev2(file, &slice, 1, (off_t)(at * BLOCK), RWF_DSYNC) != BLOCK) fail("write");
    pthread_mutex_lock(&mutex);
    flying--;
    struct thread *leader = may_start() ? &threads[pending[0]] : NULL;
    if (leader) atomic_store(&leader->state, LEAD);
    for (int i = 0; i < count; i++) atomic_store(&threads[group[i]].state, COVERED);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < count; i++)
        if (&threads[group[i]] != self) wake(&threads[group[i]]);
    if (leader) wake(leader);
    pthread_mutex_lock(&mutex);
}

static void *commit_for_ever(void *argument) {
    struct thread *me = argument;
    for (; !atomic_load(&stop); me->commits++) {
        pthread_mutex_lock(&mutex);
        atomic_store(&me->state, WAITING);
        pending[pending_count++] = (int)(me - threads);
        for (;;) {
            if (atomic_load(&me->state) == COVERED) {
                pthread_mutex_unlock(&mutex);
                break;
            }
            if (may_start()) {
                write_for_all(me);
                continue;
            }
            /* A chosen one whom somebody else took along, or came before, waits again. */
            atomic_store(&me->state, WAITING);
            pthread_mutex_unlock(&mutex);
            if (sleep_until_woken(me) == COVERED) break;
            pthread_mutex_lock(&mutex);
        }
    }
    return NULL;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 7) return fprintf(stderr, "usage: group_commit FILE THREADS SECONDS FLIGHTS LEAST FIRST\n"), 2;
    int count = atoi(argv[2]);
    flights_most = atoi(argv[4]), least = atoi(argv[5]), first = atoi(argv[6]);
    if (count < 1 || count > THREADS_MOST || flights_most < 1) return fprintf(stderr, "1 to %d threads\n", THREADS_MOST), 2;
    if (first < 1 || first > count) return fprintf(stderr, "FIRST is 1 to THREADS\n"), 2;
    if (posix_memalign(&block, BLOCK, 64 * BLOCK)) return 1;
    memset(block, 0x5A, 64 * BLOCK);
    file = open(argv[1], O_RDWR | O_CREAT | O_DIRECT, 0644);
    if (file < 0) fail(argv[1]);
    for (int i = 0; i < BLOCKS; i += 64)
        if (pwrite(file, block, 64 * BLOCK, (off_t)i * BLOCK) != 64 * BLOCK) fail("write");
    if (fsync(file)) fail("fsync");
    int gather = first;
    pthread_t handles[THREADS_MOST];
    double start = now();
    for (int i = 0; i < count; i++)
        if (pthread_create(&handles[i], NULL, commit_for_ever, &threads[i])) fail("thread");
    usleep((useconds_t)(atof(argv[3]) * 1e6));
    atomic_store(&stop, 1);
    /* Each thread ends after its next commit. The last ones are woken by those before them, or from here, as no more will come. */
    pthread_mutex_lock(&mutex);
    first = 1;
    struct thread *leader = may_start() ? &threads[pending[0]] : NULL;
    if (leader) atomic_store(&leader->state, LEAD);
    pthread_mutex_unlock(&mutex);
    if (leader) wake(leader);
    for (int i = 0; i < count; i++) pthread_join(handles[i], NULL);
    double seconds = now() - start;
    uint64_t commits = 0;
    for (int i = 0; i < count; i++) commits += threads[i].commits;
    printf("{\"workload\":\"group_commit\",\"threads\":%d,\"flights\":%d,\"least\":%d,\"first\":%d,\"per_second\":%.0f,\"group\":%.1f}\n",
           count, flights_most, least, gather, (double)commits / seconds, (double)commits / (double)next_block);
    unlink(argv[1]);
    return 0;
}
