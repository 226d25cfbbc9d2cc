// SPDX-License-Identifier: Apache-2.0
// Memory pools: memory in the order of streams. A piece is allocated at once and freed by its stream.
#include "fake.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CURRENT                             \
  struct context *context;                  \
  CUresult result = fake_current(&context); \
  if (result) return result

#define POINTER_MAGIC 0x4c4f4f50454b4146ull

struct pool {
  int physical;
  bool shareable, access[MAX_DEVICES];
  int users;                            // its handle and its pieces of memory
};

struct properties {
  int type, handle_types;
  struct {
    int type, id;
  } location;
  void *win32;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};

struct pointer_data {
  uint64_t magic, id, size, inode;
  int32_t pid, fd, zero[6];
};

_Static_assert(sizeof(struct properties) == 88, "CUmemPoolProps");
_Static_assert(sizeof(struct pointer_data) == 64, "CUmemPoolPtrExportData");

static struct pool *defaults[MAX_DEVICES];  // under fake_lock; they stay

bool fake_pool_reachable(const struct pool *pool, const struct context *context) {
  return pool->physical == context->physical || pool->access[context->physical];
}

void fake_pool_drop(struct pool *pool) {
  if (--pool->users == 0) free(pool);
}

static struct pool *create(int physical, bool shareable) {
  struct pool *pool = calloc(1, sizeof *pool);
  *pool = (struct pool){.physical = physical, .shareable = shareable, .users = 1};
  fake_handle_add(pool, HANDLE_POOL);
  return pool;
}

#define POOL \
  if (!fake_handle_is(pool, HANDLE_POOL)) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no pool", (void *)pool)

API CUresult cuDeviceGetDefaultMemPool(struct pool **pool, CUdevice device) {
  int physical = fake_physical(device);
  if (physical < 0) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&fake_lock);
  if (!defaults[physical]) defaults[physical] = create(physical, false);
  *pool = defaults[physical];
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolCreate(struct pool **pool, const struct properties *p) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  int physical = p->location.type == 1 ? fake_physical(p->location.id) : -1;
  if (p->type != 1 || p->handle_types & ~1 || p->win32 || physical < 0) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "unknown properties of a pool");
  }
  *pool = create(physical, p->handle_types == 1);
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(struct pool *pool) {
  POOL;
  fake_handle_remove(pool, HANDLE_POOL);
  pthread_mutex_lock(&fake_lock);
  fake_pool_drop(pool);
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(struct pool *pool, size_t keep) {
  POOL;
  return CUDA_SUCCESS;
}

struct access {
  int type, id, flags;
};

API CUresult cuMemPoolSetAccess(struct pool *pool, const struct access *access, size_t count) {
  POOL;
  for (size_t i = 0; i < count; i++) {
    int physical = access[i].type == 1 ? fake_physical(access[i].id) : -1;
    if (physical < 0) return CUDA_ERROR_INVALID_DEVICE;
    if (physical != pool->physical && !fake_peers_allowed()) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    pool->access[physical] = access[i].flags != 0;
  }
  return CUDA_SUCCESS;
}

// Maps the bytes of a descriptor as a piece of a pool; the descriptor belongs to it from then on.
static CUresult add(struct pool *pool, uint64_t id, uint64_t size, int fd, CUdeviceptr *address) {
  struct range made = {.size = size, .kind = RANGE_POOL, .physical = pool->physical, .id = id, .fd = fd, .pool = pool};
  made.shadow = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  made.start = (uint64_t)fake_reserve(size, GRANULARITY);
  if (made.shadow == MAP_FAILED || !made.start) return fake_fail(CUDA_ERROR_OUT_OF_MEMORY, "the host: %s", strerror(errno));
  fake_expose(made.start, size, fd);
  pthread_mutex_lock(&fake_lock);
  pool->users++;
  if ((id >> 32) == (uint64_t)getpid()) *fake_used(pool->physical) += (int64_t)size;
  fake_range_add(&made);
  pthread_mutex_unlock(&fake_lock);
  *address = made.start;
  return CUDA_SUCCESS;
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, struct pool *pool, void *stream) {
  CURRENT;
  POOL;
  if (!size) return CUDA_ERROR_INVALID_VALUE;
  uint64_t rounded = (size + PAGE - 1) / PAGE * PAGE, id = fake_new_id();
  return add(pool, id, rounded, fake_memfd(pool->physical, id, rounded), address);
}

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, void *stream) {
  CURRENT;
  struct pool *pool;
  result = cuDeviceGetDefaultMemPool(&pool, fake_ordinal(context->physical));
  return result ? result : cuMemAllocFromPoolAsync(address, size, pool, stream);
}

static void free_piece(void *address) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at((uint64_t)address);
  if (range) fake_range_remove(range);
  pthread_mutex_unlock(&fake_lock);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, void *handle) {
  CURRENT;
  struct stream *stream;
  result = fake_stream_resolve(handle, &stream, context);
  if (result) return result;
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  bool fits = range && range->kind == RANGE_POOL && range->start == address;
  pthread_mutex_unlock(&fake_lock);
  if (!fits) return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuMemFreeAsync(0x%llx)", (unsigned long long)address);
  return fake_enqueue(stream, &(struct op){.kind = OP_HOST, .host = free_piece, .host_data = (void *)address}, NULL);
}

// The name of the descriptor's file identifies the pool.
API CUresult cuMemPoolExportToShareableHandle(void *out, struct pool *pool, int type, unsigned long long flags) {
  POOL;
  if (type != 1 || flags || !pool->shareable) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "the pool was not created to be shared");
  }
  char name[64];
  snprintf(name, sizeof name, "fakecuda-pool-%d-", pool->physical);
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *(int *)out = fd;
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolImportFromShareableHandle(struct pool **pool, void *os_handle, int type, unsigned long long flags) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  int physical;
  char path[64], name[128];
  snprintf(path, sizeof path, "/proc/self/fd/%d", (int)(intptr_t)os_handle);
  ssize_t length = readlink(path, name, sizeof name - 1);
  name[length > 0 ? length : 0] = 0;
  if (type != 1 || flags || sscanf(name, "/memfd:fakecuda-pool-%d-", &physical) != 1) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "descriptor %d is of no pool", (int)(intptr_t)os_handle);
  }
  if (fake_ordinal(physical) < 0) return fake_fail(CUDA_ERROR_INVALID_DEVICE, "this process does not see GPU %d", physical);
  *pool = create(physical, false);
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolExportPointer(struct pointer_data *data, CUdeviceptr address) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  struct stat file;
  bool fits = range && range->kind == RANGE_POOL && range->start == address && range->pool->shareable;
  if (fits && !fstat(range->fd, &file)) {
    *data = (struct pointer_data){POINTER_MAGIC, range->id, range->size, file.st_ino, getpid(), range->fd, {0}};
  }
  pthread_mutex_unlock(&fake_lock);
  return fits ? CUDA_SUCCESS : fake_fail(CUDA_ERROR_INVALID_VALUE, "0x%llx is not memory of a shareable pool",
                                         (unsigned long long)address);
}

API CUresult cuMemPoolImportPointer(CUdeviceptr *address, struct pool *pool, const struct pointer_data *data) {
  CURRENT;
  POOL;
  if (data->magic != POINTER_MAGIC) return fake_fail(CUDA_ERROR_INVALID_VALUE, "these bytes are no exported pointer");
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", data->pid, data->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat file;
  if (fd < 0 || fstat(fd, &file) || file.st_ino != data->inode || (uint64_t)file.st_size != data->size) {
    if (fd >= 0) close(fd);
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "process %d has no such memory any more", data->pid);
  }
  return add(pool, data->id, data->size, fd, address);
}
