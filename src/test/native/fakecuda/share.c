// SPDX-License-Identifier: Apache-2.0
// Memory shared between processes: legacy IPC handles, and virtual memory management.
#include "fake.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CURRENT                             \
  struct context *context;                  \
  CUresult result = fake_current(&context); \
  if (result) return result

#define IPC_MAGIC 0x4550495f454b4146ull

struct ipc_handle {
  uint64_t magic, id, size, inode;
  int32_t pid, fd, physical, zero[5];
};

struct handle_bytes {
  unsigned char bytes[64];
};

_Static_assert(sizeof(struct ipc_handle) == sizeof(struct handle_bytes), "a handle has 64 bytes");

API CUresult cuIpcGetMemHandle(struct ipc_handle *handle, CUdeviceptr address) {
  CURRENT;
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  struct stat file;
  bool fits = range && range->kind == RANGE_DEVICE && !range->managed && range->start == address && range->context == context;
  if (fits && !fstat(range->fd, &file)) {
    *handle = (struct ipc_handle){IPC_MAGIC, range->id, range->size, file.st_ino, getpid(), range->fd, range->physical, {0}};
  }
  pthread_mutex_unlock(&fake_lock);
  return fits ? CUDA_SUCCESS
              : fake_fail(CUDA_ERROR_INVALID_VALUE, "0x%llx is not the start of an allocation of this context",
                          (unsigned long long)address);
}

static CUresult open_other(struct context *context, const struct ipc_handle *handle, CUdeviceptr *address) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat file;
  if (fd < 0 || fstat(fd, &file) || file.st_ino != handle->inode || (uint64_t)file.st_size != handle->size) {
    if (fd >= 0) close(fd);
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "process %d has no such allocation any more", handle->pid);
  }
  struct range range = {.size = handle->size, .kind = RANGE_IPC, .physical = handle->physical, .context = context, .fd = fd,
                        .id = handle->id, .opened = 1};
  range.shadow = mmap(NULL, range.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  range.start = (uint64_t)fake_reserve(range.size, GRANULARITY);
  if (range.shadow == MAP_FAILED || !range.start) {
    close(fd);
    return fake_fail(CUDA_ERROR_MAP_FAILED, "%s", strerror(errno));
  }
  fake_expose(range.start, range.size, fd);
  fake_range_add(&range);
  *address = range.start;
  return CUDA_SUCCESS;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, struct handle_bytes bytes, unsigned flags) {
  CURRENT;
  struct ipc_handle handle;
  memcpy(&handle, &bytes, sizeof handle);
  if (flags != 1) return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuIpcOpenMemHandle flags=%u", flags);
  if (handle.magic != IPC_MAGIC || handle.physical < 0 || handle.physical >= MAX_DEVICES) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "these bytes are no memory handle");
  }
  if (handle.pid == getpid()) return fake_fail(CUDA_ERROR_INVALID_CONTEXT, "the handle is of this same process");
  // A GPU that this process does not see can be reached all the same, since CUDA 10.1.
  if (handle.physical != context->physical && !fake_peers_allowed()) {
    return fake_fail(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "GPUs %d and %d", context->physical, handle.physical);
  }
  pthread_mutex_lock(&fake_lock);
  // Opened again in the same context: the same address, one more to close.
  struct range *known = fake_range_opened(context, handle.id);
  if (known) {
    known->opened++;
    *address = known->start;
  } else {
    result = open_other(context, &handle, address);
  }
  pthread_mutex_unlock(&fake_lock);
  return result;
}

// The range opened at an address in this context, or null; the caller holds fake_lock.
static struct range *opened_at(struct context *context, CUdeviceptr address) {
  struct range *range = fake_range_at(address);
  return range && range->kind == RANGE_IPC && range->start == address && range->context == context ? range : NULL;
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  CURRENT;
  pthread_mutex_lock(&fake_lock);
  struct range *range = opened_at(context, address);
  if (range && range->opened == 1) {
    // Streams finish before memory goes. Meanwhile another thread may open the handle again, which then keeps the memory.
    pthread_mutex_unlock(&fake_lock);
    fake_streams_stop(context);
    pthread_mutex_lock(&fake_lock);
    range = opened_at(context, address);
  }
  if (range && --range->opened == 0) fake_range_remove(range);
  pthread_mutex_unlock(&fake_lock);
  return range ? CUDA_SUCCESS
               : fake_fail(CUDA_ERROR_INVALID_VALUE, "0x%llx was not opened in this context", (unsigned long long)address);
}

struct location {
  int type, id;
};

struct properties {
  int type, handle_types;
  struct location location;
  void *win32;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

struct vmm {
  int fd, physical, users;
  uint64_t size, id;
  bool exportable;
};

struct reservation {
  uint64_t start, size;
  struct reservation *next;
};

static struct reservation *reservations;

static CUresult check_properties(const struct properties *p) {
  int physical = p->location.type == 1 ? fake_physical(p->location.id) : -1;
  for (int i = 0; i < 4; i++) {
    if (p->flags.reserved[i]) return fake_fail(CUDA_ERROR_INVALID_VALUE, "allocFlags.reserved is not zero");
  }
  if (p->type != 1 || p->handle_types & ~1 || p->win32 || p->flags.usage || physical < 0) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "unknown properties of memory");
  }
  return CUDA_SUCCESS;
}

API CUresult cuMemGetAllocationGranularity(size_t *granularity, const struct properties *properties, int option) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = option < 0 || option > 1 ? CUDA_ERROR_INVALID_VALUE : check_properties(properties);
  *granularity = GRANULARITY;
  return result;
}

API CUresult cuMemCreate(uint64_t *handle, size_t size, const struct properties *properties, unsigned long long flags) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = check_properties(properties);
  if (result) return result;
  if (!size || size % GRANULARITY || flags) return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuMemCreate of %zu bytes", size);
  int physical = fake_physical(properties->location.id);
  pthread_mutex_lock(&fake_lock);
  bool fits = *fake_used(physical) + (int64_t)size <= (int64_t)fake_memory_size();
  struct vmm *made = calloc(1, sizeof *made);
  *made = (struct vmm){.physical = physical, .users = 1, .size = size, .id = fake_new_id(),
                        .exportable = properties->handle_types & 1};
  made->fd = fits ? fake_memfd(physical, made->id, size) : -1;
  if (made->fd >= 0) *fake_used(physical) += (int64_t)size;
  pthread_mutex_unlock(&fake_lock);
  if (made->fd < 0) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  fake_handle_add(made, HANDLE_VMM);
  *handle = (uint64_t)made;
  return CUDA_SUCCESS;
}

#define VMM(handle)                                                              \
  struct vmm *vmm = (struct vmm *)(handle);                                      \
  if (!fake_handle_is(vmm, HANDLE_VMM)) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%p is no memory", (void *)vmm)

static bool mine(const struct vmm *vmm) { return (vmm->id >> 32) == (uint64_t)getpid(); }

static void vmm_drop(struct vmm *vmm) {  // under fake_lock
  if (--vmm->users) return;
  if (mine(vmm)) *fake_used(vmm->physical) -= (int64_t)vmm->size;
  close(vmm->fd);
  free(vmm);
}

API CUresult cuMemRelease(uint64_t handle) {
  VMM(handle);
  fake_handle_remove(vmm, HANDLE_VMM);
  pthread_mutex_lock(&fake_lock);
  vmm_drop(vmm);
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

API CUresult cuMemRetainAllocationHandle(uint64_t *handle, void *address) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at((uint64_t)address);
  struct vmm *vmm = range && range->kind == RANGE_VMM ? range->vmm : NULL;
  if (vmm) vmm->users++;
  pthread_mutex_unlock(&fake_lock);
  if (!vmm) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%p is not mapped by cuMemMap", address);
  fake_handle_add(vmm, HANDLE_VMM);
  *handle = (uint64_t)vmm;
  return CUDA_SUCCESS;
}

API CUresult cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags) {
  VMM(handle);
  if (type != 1 || flags) return CUDA_ERROR_INVALID_VALUE;
  if (!vmm->exportable) return fake_fail(CUDA_ERROR_INVALID_VALUE, "the memory was not created to be exported");
  int fd = fcntl(vmm->fd, F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *(int *)out = fd;
  return CUDA_SUCCESS;
}

// A dma-buf: here the file that holds the memory, which a fake network device can map.
API CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t size, int type, unsigned long long flags) {
  CURRENT;
  if (type != 1 || flags) return CUDA_ERROR_INVALID_VALUE;
  if (!size || address % 4096 || size % 4096) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "a dma-buf of %zu bytes at 0x%llx is not of whole pages", size,
                     (unsigned long long)address);
  }
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  bool whole = range && (range->vmm || range->context == context) && range->start == address && range->size == size;
  int fd = whole ? fcntl(range->vmm ? range->vmm->fd : range->fd, F_DUPFD_CLOEXEC, 3) : -1;
  pthread_mutex_unlock(&fake_lock);
  if (fd < 0) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "0x%llx is no allocation of %zu bytes of this context",
                     (unsigned long long)address, size);
  }
  *(int *)out = fd;
  return CUDA_SUCCESS;
}

API CUresult cuMemImportFromShareableHandle(uint64_t *handle, void *os_handle, int type) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  int fd = (int)(intptr_t)os_handle, physical;
  char path[64], name[128];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(path, name, sizeof name - 1);
  name[length > 0 ? length : 0] = 0;
  unsigned long long id;
  struct stat file;
  if (type != 1 || sscanf(name, "/memfd:fakecuda-%d-%llx-", &physical, &id) != 2 || fstat(fd, &file)) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "descriptor %d is no memory of a GPU", fd);
  }
  if (fake_ordinal(physical) < 0) return fake_fail(CUDA_ERROR_INVALID_DEVICE, "this process does not see GPU %d", physical);
  struct vmm *made = calloc(1, sizeof *made);
  *made = (struct vmm){.physical = physical, .users = 1, .size = (uint64_t)file.st_size, .id = id,
                        .exportable = true};
  made->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (mine(made)) {  // counted twice, because it is also released twice
    pthread_mutex_lock(&fake_lock);
    *fake_used(physical) += (int64_t)made->size;
    pthread_mutex_unlock(&fake_lock);
  }
  fake_handle_add(made, HANDLE_VMM);
  *handle = (uint64_t)made;
  return CUDA_SUCCESS;
}

API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,
                                 unsigned long long flags) {
  (void)hint;
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!size || size % GRANULARITY || flags || (alignment & (alignment - 1))) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuMemAddressReserve of %zu bytes", size);
  }
  struct reservation *made = calloc(1, sizeof *made);
  made->size = size;
  made->start = (uint64_t)fake_reserve(size, alignment > GRANULARITY ? alignment : GRANULARITY);
  if (!made->start) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_mutex_lock(&fake_lock);
  made->next = reservations;
  reservations = made;
  pthread_mutex_unlock(&fake_lock);
  *address = made->start;
  return CUDA_SUCCESS;
}

API CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  pthread_mutex_lock(&fake_lock);
  struct reservation **at = &reservations;
  while (*at && !((*at)->start == address && (*at)->size == size)) at = &(*at)->next;
  struct reservation *found = *at;
  bool mapped = found && fake_range_at(address);
  if (found && !mapped) {
    *at = found->next;
    munmap((void *)found->start, found->size);
    free(found);
  }
  pthread_mutex_unlock(&fake_lock);
  return found && !mapped ? CUDA_SUCCESS
                          : fake_fail(CUDA_ERROR_INVALID_VALUE, "0x%llx is not reserved, or still mapped",
                                      (unsigned long long)address);
}

API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
  VMM(handle);
  if (!size || size % GRANULARITY || address % GRANULARITY || offset || size > vmm->size || flags) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuMemMap of %zu bytes at 0x%llx", size, (unsigned long long)address);
  }
  pthread_mutex_lock(&fake_lock);
  struct reservation *in = reservations;
  while (in && !(address >= in->start && address + size <= in->start + in->size)) in = in->next;
  CUresult result = !in ? CUDA_ERROR_INVALID_VALUE : fake_range_at(address) ? CUDA_ERROR_ALREADY_MAPPED : CUDA_SUCCESS;
  if (!result) {
    struct range range = {.start = address, .size = size, .kind = RANGE_VMM, .physical = vmm->physical, .fd = -1,
                          .id = vmm->id, .vmm = vmm};
    range.shadow = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, vmm->fd, 0);
    if (range.shadow == MAP_FAILED) {
      result = CUDA_ERROR_MAP_FAILED;
    } else {
      vmm->users++;
      fake_expose(address, size, vmm->fd);
      fake_range_add(&range);
    }
  }
  pthread_mutex_unlock(&fake_lock);
  return result;
}

API CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  bool fits = range && range->kind == RANGE_VMM && range->start == address && range->size == size;
  if (fits) {
    vmm_drop(range->vmm);
    fake_hide(address, size);
    fake_range_remove(range);
  }
  pthread_mutex_unlock(&fake_lock);
  return fits ? CUDA_SUCCESS : fake_fail(CUDA_ERROR_INVALID_VALUE, "cuMemUnmap(0x%llx)", (unsigned long long)address);
}

struct access {
  struct location location;
  int flags;
};

API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const struct access *access, size_t count) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  CUresult result = range && range->kind == RANGE_VMM && range->start == address && range->size == size
                        ? CUDA_SUCCESS
                        : CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && !result; i++) {
    int physical = access[i].location.type == 1 ? fake_physical(access[i].location.id) : -1;
    if (physical < 0) result = CUDA_ERROR_INVALID_DEVICE;
    else if (physical != range->physical && !fake_peers_allowed()) result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    else range->access[physical] = access[i].flags != 0;
  }
  pthread_mutex_unlock(&fake_lock);
  return result ? fake_fail(result, "cuMemSetAccess(0x%llx)", (unsigned long long)address) : CUDA_SUCCESS;
}
