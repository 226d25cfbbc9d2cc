// SPDX-License-Identifier: Apache-2.0
// Memory: allocations, pinned memory, what may be reached from where, copies.
#include "fake.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include "emulation.h"
#include "races.h"

static struct range **ranges;
static size_t count, capacity;
static int64_t used[MAX_DEVICES];

int64_t *fake_used(int physical) { return &used[physical]; }

uint64_t fake_new_id(void) {
  static uint64_t next;
  return ((uint64_t)getpid() << 32) | ++next;
}

// The file's name identifies the memory for processes that receive the descriptor.
int fake_memfd(int physical, uint64_t id, uint64_t size) {
  char name[64];
  snprintf(name, sizeof name, "fakecuda-%d-%llx-", physical, (unsigned long long)id);
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)size)) {
    close(fd);
    fd = -1;
  }
  return fd;
}

void *fake_reserve(uint64_t size, uint64_t alignment) {
  unsigned char *at = mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return NULL;
  unsigned char *aligned = (unsigned char *)(((uintptr_t)at + alignment - 1) / alignment * alignment);
  if (aligned > at) munmap(at, (size_t)(aligned - at));
  if (at + alignment > aligned) munmap(aligned + size, (size_t)(at + alignment - aligned));
  return aligned;
}

void fake_expose(uint64_t start, uint64_t size, int fd) {
  if (emulation_is_on()) mmap((void *)start, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
}

void fake_hide(uint64_t start, uint64_t size) {
  if (emulation_is_on()) mmap((void *)start, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

struct range *fake_range_add(const struct range *template) {
  struct range *range = malloc(sizeof *range);
  *range = *template;
  range->users = 1;
  if (count == capacity) {
    capacity = capacity ? 2 * capacity : 64;
    ranges = realloc(ranges, capacity * sizeof *ranges);
  }
  ranges[count++] = range;
  return range;
}

struct range *fake_range_at(uint64_t address) {
  for (size_t i = 0; i < count; i++) {
    if (address - ranges[i]->start < ranges[i]->size) return ranges[i];
  }
  return NULL;
}

bool fake_is_host(const void *address) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at((uint64_t)address);
  bool is = range && range->physical < 0;
  pthread_mutex_unlock(&fake_lock);
  return is;
}

struct range *fake_range_opened(struct context *context, uint64_t id) {
  for (size_t i = 0; i < count; i++) {
    if (ranges[i]->kind == RANGE_IPC && ranges[i]->context == context && ranges[i]->id == id) return ranges[i];
  }
  return NULL;
}

void fake_range_drop(struct range *range) {
  if (--range->users) return;
  if (range->kind == RANGE_DEVICE || (range->kind == RANGE_POOL && (range->id >> 32) == (uint64_t)getpid())) used[range->physical] -= (int64_t)range->size;
  if (range->kind == RANGE_PINNED) munmap(range->shadow, range->size);
  if (range->kind == RANGE_POOL) fake_pool_drop(range->pool);
  if (range->kind == RANGE_DEVICE || range->kind == RANGE_IPC || range->kind == RANGE_POOL) {
    munmap(range->shadow, range->size);
    munmap((void *)range->start, range->size);
    close(range->fd);
  }
  if (range->kind == RANGE_VMM) munmap(range->shadow, range->size);
  free(range);
}

void fake_range_remove(struct range *range) {
  for (size_t i = 0; i < count; i++) {
    if (ranges[i] == range) {
      ranges[i] = ranges[--count];
      fake_range_drop(range);
      return;
    }
  }
}

void fake_ranges_of_context_gone(struct context *context) {
  pthread_mutex_lock(&fake_lock);
  for (size_t i = count; i-- > 0;) {
    if (ranges[i]->context == context && ranges[i]->kind != RANGE_VMM) fake_range_remove(ranges[i]);
  }
  pthread_mutex_unlock(&fake_lock);
}

bool fake_range_reachable(const struct range *range, const struct context *context) {
  switch (range->kind) {
    case RANGE_DEVICE:
      return range->physical == context->physical || context->peers[range->physical];
    case RANGE_IPC:
      return range->context == context;  // mapped for one context only
    case RANGE_POOL:
      return fake_pool_reachable(range->pool, context);
    case RANGE_VMM:
      return range->access[context->physical];
    default:
      return true;
  }
}

CUresult fake_check_span(struct context *context, const char *what, uint64_t address, uint64_t size, bool host_too,
                         bool *pageable) {
  CUresult result = CUDA_SUCCESS;
  if (pageable) *pageable = false;
  pthread_mutex_lock(&fake_lock);
  for (uint64_t at = address; at - address < size && !result;) {
    struct range *range = fake_range_at(at);
    if (!range) {
      if (host_too && at == address && address) {
        *pageable = true;
        break;
      }
      result = fake_fail(CUDA_ERROR_INVALID_VALUE, "%s 0x%llx (%llu bytes) is not in memory of CUDA", what,
                         (unsigned long long)at, (unsigned long long)size);
    } else if (!fake_range_reachable(range, context)) {
      result = fake_fail(CUDA_ERROR_INVALID_VALUE, "%s 0x%llx of GPU %d is not reachable from the context of GPU %d", what,
                         (unsigned long long)at, range->physical, context->physical);
    } else {
      at = range->start + range->size;
    }
  }
  pthread_mutex_unlock(&fake_lock);
  return result;
}

// Returns where an address's bytes are, valid until the caller drops *held.
static unsigned char *locate(struct context *context, uint64_t address, uint64_t size, uint64_t *contiguous,
                             struct range **held) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  unsigned char *bytes = NULL;
  *held = NULL;
  *contiguous = size;
  if (range && fake_range_reachable(range, context)) {
    range->users++;
    *held = range;
    uint64_t left = range->start + range->size - address;
    if (left < size) *contiguous = left;
    bytes = range->shadow + (address - range->start);
  }
  pthread_mutex_unlock(&fake_lock);
  return bytes;
}

static void drop(struct range *range) {
  if (!range) return;
  pthread_mutex_lock(&fake_lock);
  fake_range_drop(range);
  pthread_mutex_unlock(&fake_lock);
}

CUresult fake_touch(struct context *context, uint64_t address, uint64_t size,
                    void (*visit)(unsigned char *bytes, uint64_t size, void *argument), void *argument) {
  while (size) {
    uint64_t now;
    struct range *held;
    unsigned char *bytes = locate(context, address, size, &now, &held);
    if (!bytes) {
      return fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS, "GPU %d touches 0x%llx", context->physical, (unsigned long long)address);
    }
    visit(bytes, now, argument);
    drop(held);
    address += now;
    size -= now;
  }
  return CUDA_SUCCESS;
}

struct half {
  struct context *context;
  uint64_t source;
  CUresult result;
};

static void move_in(unsigned char *source, uint64_t size, void *argument) {
  unsigned char **target = argument;
  memmove(*target, source, size);
  *target += size;
}

static void move_to(unsigned char *target, uint64_t size, void *argument) {
  struct half *half = argument;
  if (!half->result) half->result = fake_touch(half->context, half->source, size, move_in, &target);
  half->source += size;
}

CUresult fake_move(struct context *context, uint64_t target, uint64_t source, uint64_t size) {
  struct half half = {context, source, CUDA_SUCCESS};
  CUresult result = fake_touch(context, target, size, move_to, &half);
  return result ? result : half.result;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  struct context *context;
  CUresult result = fake_current(&context);
  if (result) return result;
  if (!size || !address) return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc of %zu bytes", size);
  result = fake_capture_unsafe("cuMemAlloc");
  if (result) return result;
  uint64_t rounded = (size + PAGE - 1) / PAGE * PAGE;
  pthread_mutex_lock(&fake_lock);
  if (rounded < size || used[context->physical] + (int64_t)rounded > (int64_t)fake_memory_size()) {
    pthread_mutex_unlock(&fake_lock);
    return fake_fail(CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc of %zu bytes", size);
  }
  struct range made = {.size = rounded, .kind = RANGE_DEVICE, .physical = context->physical, .context = context};
  made.id = fake_new_id();
  made.fd = fake_memfd(context->physical, made.id, rounded);
  made.shadow = made.fd < 0 ? MAP_FAILED : mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
  made.start = (uint64_t)fake_reserve(rounded, GRANULARITY);
  if (made.shadow == MAP_FAILED || !made.start) {
    pthread_mutex_unlock(&fake_lock);
    return fake_fail(CUDA_ERROR_OUT_OF_MEMORY, "the host: %s", strerror(errno));
  }
  fake_expose(made.start, rounded, made.fd);
  // New memory of a real GPU is not zero.
  memset(made.shadow, 0xcd, rounded < 1 << 16 ? rounded : 1 << 16);
  used[context->physical] += (int64_t)rounded;
  fake_range_add(&made);
  pthread_mutex_unlock(&fake_lock);
  *address = made.start;
  return CUDA_SUCCESS;
}

static CUresult free_range(struct context *context, uint64_t address, enum range_kind kind, const char *call) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  if (range && range->kind == RANGE_POOL && kind == RANGE_DEVICE) kind = RANGE_POOL;
  bool found = range && range->start == address && range->kind == kind;
  struct context *owner = !found ? NULL : kind == RANGE_POOL ? context : range->context;
  pthread_mutex_unlock(&fake_lock);
  if (!found) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s(0x%llx) is not the start of such an allocation", call,
                               (unsigned long long)address);
  if (kind != RANGE_PINNED && owner != context) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s(0x%llx) with another GPU's context current", call,
                     (unsigned long long)address);
  }
  // As the real one: it waits for everything that the context has been given.
  if (kind != RANGE_REGISTERED) fake_streams_stop(owner);
  pthread_mutex_lock(&fake_lock);
  range = fake_range_at(address);
  if (range && range->start == address && range->kind == kind) fake_range_remove(range);
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

#define CURRENT                          \
  struct context *context;               \
  CUresult result = fake_current(&context); \
  if (result) return result

// Differs from cuMemAlloc only in the attributes that the driver reports.
API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
  if (flags != 1 && flags != 2) return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuMemAllocManaged flags=%u", flags);
  CUresult result = cuMemAlloc_v2(address, size);
  if (result) return result;
  pthread_mutex_lock(&fake_lock);
  fake_range_at(*address)->managed = true;
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

API CUresult cuMemFree_v2(CUdeviceptr address) {
  CURRENT;
  result = fake_capture_unsafe("cuMemFree");
  if (result) return result;
  return address ? free_range(context, address, RANGE_DEVICE, "cuMemFree") : CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  CURRENT;
  pthread_mutex_lock(&fake_lock);
  *total = fake_memory_size();
  *free_bytes = *total - (size_t)used[context->physical];
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
  CURRENT;
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  if (range && range->managed) range = NULL;  // a real driver knows no range of it either
  if (range && start) *start = range->start;
  if (range && size) *size = range->size;
  pthread_mutex_unlock(&fake_lock);
  return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
  CURRENT;
  if (!size || flags > 7) return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuMemHostAlloc(%zu, flags=%u)", size, flags);
  uint64_t rounded = (size + PAGE - 1) / PAGE * PAGE;
  void *bytes = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  memset(bytes, 0xcd, rounded < 1 << 16 ? rounded : 1 << 16);
  pthread_mutex_lock(&fake_lock);
  fake_range_add(&(struct range){.start = (uint64_t)bytes, .size = rounded, .shadow = bytes, .kind = RANGE_PINNED,
                                 .physical = -1, .context = context, .fd = -1});
  pthread_mutex_unlock(&fake_lock);
  *address = bytes;
  return CUDA_SUCCESS;
}

API CUresult cuMemAllocHost_v2(void **address, size_t size) { return cuMemHostAlloc(address, size, 0); }

API CUresult cuMemFreeHost(void *address) {
  CURRENT;
  return free_range(context, (uint64_t)address, RANGE_PINNED, "cuMemFreeHost");
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pointer, void *address, unsigned flags) {
  CURRENT;
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at((uint64_t)address);
  bool pinned = range && range->physical < 0;
  pthread_mutex_unlock(&fake_lock);
  if (!pinned || flags) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%p is no pinned memory", address);
  *pointer = (uint64_t)address;
  return CUDA_SUCCESS;
}

API CUresult cuMemHostGetFlags(unsigned *flags, void *address) {
  CUdeviceptr pointer;
  CUresult result = cuMemHostGetDevicePointer_v2(&pointer, address, 0);
  *flags = 3;
  return result;
}

API CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
  CURRENT;
  if (!address || !size || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  bool already = fake_range_at((uint64_t)address) || fake_range_at((uint64_t)address + size - 1);
  if (!already) {
    fake_range_add(&(struct range){.start = (uint64_t)address, .size = size, .shadow = address, .kind = RANGE_REGISTERED,
                                   .physical = -1, .context = context, .fd = -1});
  }
  pthread_mutex_unlock(&fake_lock);
  return already ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_SUCCESS;
}

API CUresult cuMemHostUnregister(void *address) {
  CURRENT;
  return free_range(context, (uint64_t)address, RANGE_REGISTERED, "cuMemHostUnregister")
             ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
             : CUDA_SUCCESS;
}

API CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  CUresult result = range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (range) {
    switch (attribute) {
      case 1: *(void **)value = range->context; break;
      case 2: *(unsigned *)value = range->physical < 0 ? 1 : 2; break;
      case 3: *(CUdeviceptr *)value = address; break;
      case 4: result = range->physical < 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
              if (!result) *(uint64_t *)value = address;
              break;
      case 7: *(uint64_t *)value = range->id; break;
      case 8: *(int *)value = range->managed; break;
      case 9: *(int *)value = fake_ordinal(range->physical < 0 ? range->context->physical : range->physical); break;
      case 10: *(int *)value = range->kind == RANGE_DEVICE && !range->managed; break;
      case 11: *(CUdeviceptr *)value = range->start; break;
      case 12: *(size_t *)value = range->size; break;
      case 13: *(int *)value = 1; break;
      case 17: *(void **)value = range->kind == RANGE_POOL ? range->pool : NULL; break;
      default: result = CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  pthread_mutex_unlock(&fake_lock);
  return result;
}
