#include "tests/harness/results/failing_disk.h"

#include <sqlite3.h>

#include <limits>
#include <new>

namespace kvarena::results {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Disk {
  sqlite3_vfs vfs{};
  sqlite3_vfs* real = nullptr;
  DiskFailure failure{};
  int64_t first = kNever;
  int64_t operations = 0;

  bool fails() { return ++operations > first; }
};

Disk disk;

/// SQLite's handle of an open file; the real VFS's own part follows it in memory.
struct File {
  sqlite3_file base;
  sqlite3_file* real;
};

sqlite3_file* real(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real; }

int close(sqlite3_file* file) { return real(file)->pMethods->xClose(real(file)); }
int read(sqlite3_file* file, void* to, int bytes, sqlite3_int64 at) {
  return real(file)->pMethods->xRead(real(file), to, bytes, at);
}
int write(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 at) {
  if (disk.failure != DiskFailure::sync && disk.fails()) {
    if (disk.failure == DiskFailure::torn) real(file)->pMethods->xWrite(real(file), from, bytes / 2, at);
    return disk.failure == DiskFailure::full ? SQLITE_FULL : SQLITE_IOERR_WRITE;
  }
  return real(file)->pMethods->xWrite(real(file), from, bytes, at);
}
int truncate(sqlite3_file* file, sqlite3_int64 bytes) { return real(file)->pMethods->xTruncate(real(file), bytes); }
int sync(sqlite3_file* /*file*/, int /*flags*/) {  // no power is cut here, so nothing waits for the real disk
  return disk.failure == DiskFailure::sync && disk.fails() ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}
int file_size(sqlite3_file* file, sqlite3_int64* bytes) { return real(file)->pMethods->xFileSize(real(file), bytes); }
int lock(sqlite3_file* file, int level) { return real(file)->pMethods->xLock(real(file), level); }
int unlock(sqlite3_file* file, int level) { return real(file)->pMethods->xUnlock(real(file), level); }
int is_locked(sqlite3_file* file, int* held) { return real(file)->pMethods->xCheckReservedLock(real(file), held); }
int control(sqlite3_file* file, int what, void* argument) {
  return real(file)->pMethods->xFileControl(real(file), what, argument);
}
int sector_size(sqlite3_file* file) { return real(file)->pMethods->xSectorSize(real(file)); }
int characteristics(sqlite3_file* file) { return real(file)->pMethods->xDeviceCharacteristics(real(file)); }
int shm_map(sqlite3_file* file, int page, int bytes, int extend, void volatile** at) {
  return real(file)->pMethods->xShmMap(real(file), page, bytes, extend, at);
}
int shm_lock(sqlite3_file* file, int offset, int n, int flags) {
  return real(file)->pMethods->xShmLock(real(file), offset, n, flags);
}
void shm_barrier(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }
int shm_unmap(sqlite3_file* file, int remove) { return real(file)->pMethods->xShmUnmap(real(file), remove); }

const sqlite3_io_methods kMethods = {.iVersion = 2,
                                     .xClose = close,
                                     .xRead = read,
                                     .xWrite = write,
                                     .xTruncate = truncate,
                                     .xSync = sync,
                                     .xFileSize = file_size,
                                     .xLock = lock,
                                     .xUnlock = unlock,
                                     .xCheckReservedLock = is_locked,
                                     .xFileControl = control,
                                     .xSectorSize = sector_size,
                                     .xDeviceCharacteristics = characteristics,
                                     .xShmMap = shm_map,
                                     .xShmLock = shm_lock,
                                     .xShmBarrier = shm_barrier,
                                     .xShmUnmap = shm_unmap,
                                     .xFetch = nullptr,
                                     .xUnfetch = nullptr};

int open(sqlite3_vfs* /*vfs*/, const char* name, sqlite3_file* memory, int flags, int* given) {
  auto* file = new (memory) File{};
  file->real = reinterpret_cast<sqlite3_file*>(file + 1);
  const int code = disk.real->xOpen(disk.real, name, file->real, flags, given);
  if (file->real->pMethods != nullptr) file->base.pMethods = &kMethods;
  return code;
}

}  // namespace

FailingDisk::FailingDisk(DiskFailure failure, int64_t first) {
  disk = {.real = sqlite3_vfs_find(nullptr), .failure = failure, .first = first};
  disk.vfs = *disk.real;  // names, time and randomness are the real one's
  disk.vfs.szOsFile = static_cast<int>(sizeof(File)) + disk.real->szOsFile;
  disk.vfs.pNext = nullptr;
  disk.vfs.zName = "failing-disk";
  disk.vfs.xOpen = open;
  sqlite3_vfs_register(&disk.vfs, 1);
}

FailingDisk::~FailingDisk() {
  sqlite3_vfs_unregister(&disk.vfs);
  sqlite3_vfs_register(disk.real, 1);
}

void FailingDisk::repair() { disk.first = kNever; }
int64_t FailingDisk::operations() const { return disk.operations; }

}  // namespace kvarena::results
