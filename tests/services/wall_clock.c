/*
 * Preloaded into a process, it adds to every reading of the wall clock what a shared file says.
 *
 * Nothing here allocates, opens or locks once the process has begun: servers read the clock inside
 * signal handlers, where any of that may corrupt them. The monotonic clock is left alone. Waits
 * that end at a time of the wall clock are not moved; the programs of the tests have none.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL

static const int64_t unmoved = 0;
static const int64_t *moved_ns = &unmoved;

__attribute__((constructor)) static void follow(void)
{
    const char *path = getenv("WALL_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort(); /* A clock that does not move would let every test pass that waits for it. */
    void *shared = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED)
        abort();
    moved_ns = shared;
}

static int read_clock(clockid_t clock, struct timespec *out)
{
    /* The system call itself: the library's own function is the one that is replaced here. */
    return (int)syscall(SYS_clock_gettime, clock, out);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int failed = read_clock(clock, out);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t ns = out->tv_sec * NS_PER_S + out->tv_nsec + __atomic_load_n(moved_ns, __ATOMIC_RELAXED);
    out->tv_sec = ns / NS_PER_S;
    out->tv_nsec = ns % NS_PER_S;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    (void)zone;
    if (!failed && out) {
        out->tv_sec = now.tv_sec;
        out->tv_usec = now.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *out)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return (time_t)-1;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
