/* Calls that write files fail as if the disk were full, over its quota, broken or read-only.

   Preloaded (LD_PRELOAD) into every process of a job; write_faults.py describes the variables:

   FAILING_PROCESS   last part of one of the first four words of the command line; other processes
                     are left alone
   FAILING_BELOW     directory below which calls are counted and fail
   FAILING_ERROR     errno
   FAILING_FIRST     first call that fails; all processes of that name count together, from 1
   FAILING_LAST      last one
   FAILING_RECORD    file whose first eight bytes are the number of calls so far, and to which the
                     failed calls are appended, one line each */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic long *calls;
static long first, last;
static int error, record = -1;
static pid_t checked;

static int is_chosen_process(const char *name)
{
    char words[4096];
    int file = syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY, 0);
    long size = file < 0 ? 0 : syscall(SYS_read, file, words, sizeof words - 1);
    syscall(SYS_close, file);
    words[size > 0 ? size : 0] = 0;
    const char *word = words;
    for (int i = 0; i < 4 && word < words + size; i++, word += strlen(word) + 1) {
        size_t length = strlen(word);
        if (length >= strlen(name) && !strcmp(word + length - strlen(name), name))
            return 1;
    }
    return 0;
}

/* Open the record if this is the process whose calls are to fail. */
static void start(void)
{
    const char *process = getenv("FAILING_PROCESS"), *path = getenv("FAILING_RECORD");
    calls = NULL;
    if (!process || !path || !is_chosen_process(process))
        return;
    error = atoi(getenv("FAILING_ERROR"));
    first = atol(getenv("FAILING_FIRST"));
    last = atol(getenv("FAILING_LAST"));
    record = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_APPEND | O_CLOEXEC, 0);
    void *page = (void *)syscall(SYS_mmap, 0, 8, PROT_READ | PROT_WRITE, MAP_SHARED, record, 0);
    calls = page == MAP_FAILED ? NULL : page;
}

/* Return 1, with errno set, if this call is to fail. */
static int fails(const char *call, const char *path)
{
    const char *below = getenv("FAILING_BELOW");
    size_t length = below ? strlen(below) : 0;
    if (!below || strncmp(path, below, length) || (path[length] && path[length] != '/'))
        return 0;
    if (checked != getpid()) { /* a forked process has another command line by now */
        checked = getpid();
        start();
    }
    if (!calls)
        return 0;
    long number = atomic_fetch_add(calls, 1) + 1;
    if (number < first || number > last)
        return 0;
    char line[4200];
    int size = snprintf(line, sizeof line, "%s %s\n", call, path);
    syscall(SYS_write, record, line, size);
    errno = error;
    return 1;
}

static int fails_at(const char *call, int directory, const char *path)
{
    char full[4096];
    if (!getenv("FAILING_BELOW"))
        return 0;
    if (path[0] == '/')
        return fails(call, path);
    char link[64];
    if (directory == AT_FDCWD)
        strcpy(link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, full, sizeof full - 256);
    if (size <= 0)
        return 0;
    snprintf(full + size, sizeof full - size, "/%s", path);
    return fails(call, full);
}

static int fails_on(const char *call, int file)
{
    char link[64], full[4096];
    if (!getenv("FAILING_BELOW"))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, full, sizeof full - 1);
    if (size <= 0)
        return 0;
    full[size] = 0;
    return fails(call, full);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define ON_FILE(type, name, parameters, arguments, file)                                           \
    type name parameters { return fails_on(#name, file) ? -1 : NEXT(name) arguments; }
#define AT_PATH(name, parameters, arguments, directory, path)                                      \
    int name parameters { return fails_at(#name, directory, path) ? -1 : NEXT(name) arguments; }
/* A full disk lets files be opened, mapped and removed, but not created. */
static int is_full(void)
{
    return error == ENOSPC || error == EDQUOT;
}

#define REMOVAL(name, parameters, arguments, directory, path)                                      \
    int name parameters                                                                            \
    {                                                                                              \
        return !is_full() && fails_at(#name, directory, path) ? -1 : NEXT(name) arguments;           \
    }
#define OPENING(name, parameters, arguments, directory)                                            \
    int name parameters                                                                            \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                    \
        va_end(rest);                                                                              \
        int writes = flags & (is_full() ? O_CREAT : O_WRONLY | O_RDWR | O_CREAT);                  \
        return writes && fails_at(#name, directory, path) ? -1 : NEXT(name) arguments;             \
    }

OPENING(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPENING(open64, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPENING(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), at)
OPENING(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode), at)
ON_FILE(ssize_t, write, (int f, const void *b, size_t n), (f, b, n), f)
ON_FILE(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o), f)
ON_FILE(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o), f)
ON_FILE(ssize_t, writev, (int f, const struct iovec *v, int n), (f, v, n), f)
ON_FILE(int, ftruncate, (int f, off_t n), (f, n), f)
ON_FILE(int, ftruncate64, (int f, off64_t n), (f, n), f)
ON_FILE(int, fsync, (int f), (f), f)
ON_FILE(int, fdatasync, (int f), (f), f)
AT_PATH(mkdir, (const char *p, mode_t m), (p, m), AT_FDCWD, p)
AT_PATH(rename, (const char *p, const char *q), (p, q), AT_FDCWD, q)
AT_PATH(link, (const char *p, const char *q), (p, q), AT_FDCWD, q)
AT_PATH(linkat, (int a, const char *p, int b, const char *q, int f), (a, p, b, q, f), b, q)
AT_PATH(symlink, (const char *p, const char *q), (p, q), AT_FDCWD, q)
REMOVAL(unlink, (const char *p), (p), AT_FDCWD, p)
REMOVAL(unlinkat, (int a, const char *p, int f), (a, p, f), a, p)
REMOVAL(rmdir, (const char *p), (p), AT_FDCWD, p)

/* These two return the error. */
int posix_fallocate(int f, off_t o, off_t n)
{
    return fails_on("posix_fallocate", f) ? error : NEXT(posix_fallocate)(f, o, n);
}

int posix_fallocate64(int f, off64_t o, off64_t n)
{
    return fails_on("posix_fallocate64", f) ? error : NEXT(posix_fallocate64)(f, o, n);
}

static int is_shared(int protection, int flags)
{
    int is_file = (flags & MAP_SHARED) && !(flags & MAP_ANONYMOUS);
    return is_file && (protection & PROT_WRITE) && !is_full();
}

void *mmap(void *a, size_t n, int p, int flags, int f, off_t o)
{
    int failed = is_shared(p, flags) && fails_on("mmap", f);
    return failed ? MAP_FAILED : NEXT(mmap)(a, n, p, flags, f, o);
}

void *mmap64(void *a, size_t n, int p, int flags, int f, off64_t o)
{
    int failed = is_shared(p, flags) && fails_on("mmap64", f);
    return failed ? MAP_FAILED : NEXT(mmap64)(a, n, p, flags, f, o);
}
