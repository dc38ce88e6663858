/* Stands between a process and its disk: records each change below a folder, in order over all processes and threads,
 * and lists calls, or lets one fail. Python, Java, Arrow and Rust all call libc, so LD_PRELOAD reaches every one of them.
 *
 * The control block is a file that all processes map, named by LYING_DISK; `lying_disk_*` below set it. A record is
 * struct head, then a path, a second path and the bytes that were written. recording.py reads them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum call { OPEN, READ, WRITE, SYNC, RENAME, LINK, MKDIR, UNLINK, TRUNCATE, CALLS };
enum record { CREATED = 1, WRITTEN, RESIZED, SYNCED, FOLDER_SYNCED, ALL_SYNCED, RENAMED, LINKED, UNLINKED, MADE, MARKED, MAPPED };

struct head {
    uint32_t kind, path, path2, data;
    int64_t inode, at;
};

static struct control {
    pthread_mutex_t mutex;
    int ready, error; /* error: what the `number`th call `call` for files `files` fails with; 0: none */
    int call, fired;
    int64_t number, seen;
    char folder[PATH_MAX], log[PATH_MAX], files[PATH_MAX], list[PATH_MAX]; /* list: of calls; without it, none fails */
} *control;

#define REAL(type, name, ...)                                   \
    static type (*real)(__VA_ARGS__);                           \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

/* ---- the control block ---- */

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("LYING_DISK");
    int fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    void *mapped = (void *)syscall(SYS_mmap, 0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (mapped != MAP_FAILED) control = mapped;
}

static void lock(void) {
    if (pthread_mutex_lock(&control->mutex) == EOWNERDEAD) pthread_mutex_consistent(&control->mutex);
}

static void unlock(void) {
    int kept = errno;
    pthread_mutex_unlock(&control->mutex);
    errno = kept;
}

int lying_disk_begin(const char *folder, const char *log) {
    if (!control) return -1;
    if (!control->ready) {
        pthread_mutexattr_t about;
        pthread_mutexattr_init(&about);
        pthread_mutexattr_setpshared(&about, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&about, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&control->mutex, &about);
    }
    lock();
    snprintf(control->folder, PATH_MAX, "%s", folder);
    snprintf(control->log, PATH_MAX, "%s", log);
    control->ready = 1;
    unlock();
    return 0;
}

void lying_disk_fail(const char *list, int call, const char *files, int64_t number, int error) {
    lock();
    snprintf(control->files, PATH_MAX, "%s", files);
    control->call = call, control->number = number, control->error = error;
    control->seen = 0, control->fired = 0;
    snprintf(control->list, PATH_MAX, "%s", list);
    unlock();
}

int lying_disk_end(void) {
    lock();
    control->list[0] = 0;
    unlock();
    return control->fired;
}

/* ---- which files it is about ---- */

static int is_ours(const char *path) {
    size_t length = strlen(control->folder);
    return strncmp(path, control->folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int named(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* The whole path of a name in a folder, without the dots that Java and Rust leave; 0 if it is not ours. */
static int ours_at(int folder, const char *name, char *path) {
    if (!control || !control->ready || !name) return 0;
    int kept = errno;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else if (folder == AT_FDCWD ? getcwd(path, PATH_MAX) != NULL : named(folder, path)) {
        size_t length = strlen(path);
        snprintf(path + length, PATH_MAX - length, "/%s", name);
    } else {
        path[0] = 0;
    }
    char *to = path;
    for (char *from = path; *from;) {
        if (from[0] == '/' && from[1] == '/') from++;
        else if (from[0] == '/' && from[1] == '.' && (from[2] == '/' || !from[2])) from += 2;
        else *to++ = *from++;
    }
    if (to > path + 1 && to[-1] == '/') to--;
    *to = 0;
    errno = kept;
    return is_ours(path);
}

static int ours(int fd, struct stat *about, char *path) {
    if (!control || !control->ready) return 0;
    int kept = errno;
    int found = fstat(fd, about) == 0 && (S_ISREG(about->st_mode) || S_ISDIR(about->st_mode)) && named(fd, path) && is_ours(path);
    errno = kept;
    return found;
}

/* ---- what is done with them ---- */

/* The path below the folder; hexadecimal digits and dashes in a row become one sign if a number is among them. */
static void files_of(const char *path, char *files) {
    path += strlen(control->folder);
    while (*path) {
        size_t length = strspn(path, "-0123456789abcdef");
        int differs = strcspn(path, "0123456789") < length;
        if (!length) length = 1;
        files = mempcpy(files, differs ? "#" : path, differs ? 1 : length);
        path += length;
    }
    *files = 0;
}

static void list(enum call call, const char *files) {
    char line[PATH_MAX + 16];
    int kept = errno, size = snprintf(line, sizeof line, "%d %s\n", call, files);
    int fd = syscall(SYS_openat, AT_FDCWD, control->list, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    syscall(SYS_write, fd, line, size);
    syscall(SYS_close, fd);
    errno = kept;
}

static int fails(enum call call, const char *path) {
    if (!control->list[0]) return 0;
    char files[PATH_MAX];
    files_of(path, files);
    list(call, files);
    if (!control->error || control->call != (int)call || strcmp(control->files, files)) return 0;
    if (__sync_add_and_fetch(&control->seen, 1) != control->number) return 0;
    control->fired = 1;
    errno = control->error;
    return 1;
}

static int64_t inode_of(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 ? (int64_t)about.st_ino : -1;
}

static void put(int kind, int64_t inode, int64_t at, const char *path, const char *path2, const void *data, size_t size) {
    if (!control->log[0]) return;
    int kept = errno;
    struct head head = {kind, path ? strlen(path) : 0, path2 ? strlen(path2) : 0, size, inode, at};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)path2, head.path2}, {(void *)data, size}};
    int fd = syscall(SYS_openat, AT_FDCWD, control->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    syscall(SYS_writev, fd, parts, 4);
    syscall(SYS_close, fd);
    errno = kept;
}

void lying_disk_mark(const char *text) {
    if (!control || !control->ready) return;
    lock();
    put(MARKED, 0, 0, text, NULL, NULL, 0);
    unlock();
}

static int opened(int folder, const char *name, int flags, mode_t mode) {
    REAL(int, "openat", int, const char *, int, ...);
    char path[PATH_MAX];
    if (!ours_at(folder, name, path)) return real(folder, name, flags, mode);
    if (fails(OPEN, path)) return -1;
    if (!(flags & (O_CREAT | O_TRUNC))) return real(folder, name, flags, mode);
    lock();
    int was_there = inode_of(path) >= 0;
    int fd = real(folder, name, flags, mode);
    if (fd >= 0 && !was_there) put(CREATED, inode_of(path), 0, path, NULL, NULL, 0);
    if (fd >= 0 && was_there && (flags & O_TRUNC)) put(RESIZED, inode_of(path), 0, path, NULL, NULL, 0);
    unlock();
    return fd;
}

#define MODE()                              \
    va_list rest;                           \
    va_start(rest, flags);                  \
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0; \
    va_end(rest)

int open(const char *path, int flags, ...) { MODE(); return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(); return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(); return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(); return opened(folder, path, flags | O_LARGEFILE, mode); }
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* A write of parts at a place; -1: at the file's own. */
static ssize_t written(int fd, const struct iovec *parts, int count, off_t at, ssize_t (*real)(int, const struct iovec *, int, off_t)) {
    struct stat about;
    char path[PATH_MAX];
    if (!ours(fd, &about, path)) return real(fd, parts, count, at);
    if (fails(WRITE, path)) return -1;
    lock();
    int flags = fcntl(fd, F_GETFL);
    off_t begin = at >= 0 ? at : (flags & O_APPEND) ? about.st_size : lseek(fd, 0, SEEK_CUR);
    if (at < 0 && (flags & O_APPEND) && fstat(fd, &about) == 0) begin = about.st_size;
    ssize_t size = real(fd, parts, count, at);
    ssize_t left = size;
    for (int n = 0; n < count && left > 0; n++) {
        size_t part = (size_t)left < parts[n].iov_len ? (size_t)left : parts[n].iov_len;
        put(WRITTEN, about.st_ino, begin, path, NULL, parts[n].iov_base, part);
        begin += part, left -= part;
    }
    if (size > 0 && (flags & O_DSYNC)) put(SYNCED, about.st_ino, 0, path, NULL, NULL, 0);
    unlock();
    return size;
}

static ssize_t to_disk(int fd, const struct iovec *parts, int count, off_t at) {
    if (at < 0) return count == 1 ? syscall(SYS_write, fd, parts->iov_base, parts->iov_len) : syscall(SYS_writev, fd, parts, count);
    return count == 1 ? syscall(SYS_pwrite64, fd, parts->iov_base, parts->iov_len, at) : syscall(SYS_pwritev, fd, parts, count, at, 0);
}

static ssize_t one(int fd, const void *data, size_t size, off_t at) {
    struct iovec part = {(void *)data, size};
    return written(fd, &part, 1, at, to_disk);
}

ssize_t write(int fd, const void *data, size_t size) { return one(fd, data, size, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return one(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return one(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return written(fd, parts, count, -1, to_disk); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return written(fd, parts, count, at, to_disk); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return written(fd, parts, count, at, to_disk); }

/* Copies inside the kernel are refused, so that the caller copies by read and write. */
static int refused(int fd) {
    struct stat about;
    char path[PATH_MAX];
    return ours(fd, &about, path);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags) {
    if (refused(to)) return errno = EXDEV, -1;
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, size, flags);
}
ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    if (refused(to)) return errno = EINVAL, -1;
    return syscall(SYS_sendfile, to, from, at, size);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) { return sendfile(to, from, at, size); }

void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t at) {
    struct stat about;
    char path[PATH_MAX];
    if (fd >= 0 && (flags & MAP_TYPE) != MAP_PRIVATE && (protection & PROT_WRITE) && ours(fd, &about, path)) {
        lock();
        put(MAPPED, about.st_ino, at, path, NULL, NULL, 0);
        unlock();
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, at);
}
void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t at) { return mmap64(address, size, protection, flags, fd, at); }

/* ---- reads: only counted, and failed ---- */

static int read_fails(int fd) {
    struct stat about;
    char path[PATH_MAX];
    return control && control->list[0] && ours(fd, &about, path) && fails(READ, path);
}

ssize_t read(int fd, void *data, size_t size) { return read_fails(fd) ? -1 : syscall(SYS_read, fd, data, size); }
ssize_t pread(int fd, void *data, size_t size, off_t at) { return read_fails(fd) ? -1 : syscall(SYS_pread64, fd, data, size, at); }
ssize_t pread64(int fd, void *data, size_t size, off64_t at) { return pread(fd, data, size, at); }
ssize_t readv(int fd, const struct iovec *parts, int count) { return read_fails(fd) ? -1 : syscall(SYS_readv, fd, parts, count); }
ssize_t __read_chk(int fd, void *data, size_t size, size_t room) { return size > room ? (abort(), 0) : read(fd, data, size); }
ssize_t __pread_chk(int fd, void *data, size_t size, off_t at, size_t room) { return size > room ? (abort(), 0) : pread(fd, data, size, at); }
ssize_t __pread64_chk(int fd, void *data, size_t size, off64_t at, size_t room) { return size > room ? (abort(), 0) : pread(fd, data, size, at); }

/* ---- syncs and sizes ---- */

static int synced(int fd, long number) {
    struct stat about;
    char path[PATH_MAX];
    if (!ours(fd, &about, path)) return syscall(number, fd);
    if (fails(SYNC, path)) return -1;
    lock();
    int status = syscall(number, fd);
    int kind = number == SYS_syncfs ? ALL_SYNCED : S_ISDIR(about.st_mode) ? FOLDER_SYNCED : SYNCED;
    if (status == 0) put(kind, about.st_ino, 0, path, NULL, NULL, 0);
    unlock();
    return status;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
int syncfs(int fd) { return synced(fd, SYS_syncfs); }

/* `grows`: allocates, and never makes a file shorter. */
static int resized(int fd, off_t size, int grows) {
    struct stat about;
    char path[PATH_MAX];
    int is_ours = ours(fd, &about, path);
    if (is_ours && fails(TRUNCATE, path)) return -1;
    if (is_ours) lock();
    int status = grows ? syscall(SYS_fallocate, fd, 0, 0, size) : syscall(SYS_ftruncate, fd, size);
    if (is_ours && status == 0 && !(grows && about.st_size >= size)) put(RESIZED, about.st_ino, size, path, NULL, NULL, 0);
    if (is_ours) unlock();
    return status;
}

int ftruncate(int fd, off_t size) { return resized(fd, size, 0); }
int ftruncate64(int fd, off64_t size) { return resized(fd, size, 0); }
int posix_fallocate(int fd, off_t at, off_t size) { return resized(fd, at + size, 1) == 0 ? 0 : errno; }
int posix_fallocate64(int fd, off64_t at, off64_t size) { return posix_fallocate(fd, at, size); }

int truncate(const char *name, off_t size) {
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int status = ftruncate(fd, size), kept = errno;
    close(fd);
    return errno = kept, status;
}
int truncate64(const char *name, off64_t size) { return truncate(name, size); }

/* ---- names ---- */

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char path[PATH_MAX], path2[PATH_MAX];
    int first = ours_at(from_folder, from, path), second = ours_at(to_folder, to, path2);
    if (!first && !second) return syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    if (fails(RENAME, second ? path2 : path)) return -1;
    lock();
    int64_t inode = inode_of(path);
    int status = syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    if (status == 0) put(RENAMED, inode, 0, path, path2, NULL, 0);
    unlock();
    return status;
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) { return renameat2(from_folder, from, to_folder, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char path[PATH_MAX], path2[PATH_MAX];
    ours_at(from_folder, from, path);
    if (!ours_at(to_folder, to, path2)) return syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    if (fails(LINK, path2)) return -1;
    lock();
    int status = syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    if (status == 0) put(LINKED, inode_of(path2), 0, path, path2, NULL, 0);
    unlock();
    return status;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    if (!ours_at(folder, name, path)) return syscall(SYS_unlinkat, folder, name, flags);
    if (fails(UNLINK, path)) return -1;
    lock();
    int64_t inode = inode_of(path);
    int status = syscall(SYS_unlinkat, folder, name, flags);
    if (status == 0) put(UNLINKED, inode, flags & AT_REMOVEDIR, path, NULL, NULL, 0);
    unlock();
    return status;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    int status = unlink(path);
    return status != 0 && (errno == EISDIR || errno == EPERM) ? rmdir(path) : status;
}

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!ours_at(folder, name, path)) return syscall(SYS_mkdirat, folder, name, mode);
    if (fails(MKDIR, path)) return -1;
    lock();
    int status = syscall(SYS_mkdirat, folder, name, mode);
    if (status == 0) put(MADE, inode_of(path), 0, path, NULL, NULL, 0);
    unlock();
    return status;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
