// SPDX-License-Identifier: Apache-2.0
// Initialisation, devices, primary contexts, peers.
#include "fake.h"

#include <stdarg.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
bool fake_initialized;

static int visible[MAX_DEVICES];
static int visible_count;
static bool peers_allowed, over_pcie;
static FILE *log_file;
static uint64_t memory_size;
static struct context *contexts[MAX_DEVICES];

#define STACK 16
static __thread struct context *stack[STACK];
static __thread int depth;

static long env(const char *name, long otherwise) {
  const char *value = getenv(name);
  return value && *value ? strtol(value, NULL, 0) : otherwise;
}

CUresult fake_fail(CUresult code, const char *format, ...) {
  if (log_file) {
    va_list args;
    va_start(args, format);
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(log_file, "fake CUDA, process %d: error %d: %s\n", getpid(), code, text);
    fflush(log_file);
  }
  return code;
}

API CUresult cuInit(unsigned flags) {
  if (flags) return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuInit flags=%u", flags);
  pthread_mutex_lock(&fake_lock);
  if (!fake_initialized) {
    int physical = (int)env("FAKE_CUDA_DEVICES", 2);
    if (physical < 0) physical = 0;
    if (physical > MAX_DEVICES) physical = MAX_DEVICES;
    const char *path = getenv("FAKE_CUDA_LOG");
    if (path && *path) log_file = strcmp(path, "-") ? fopen(path, "ae") : stderr;
    peers_allowed = env("FAKE_CUDA_NO_PEER", 0) == 0;
    const char *link = getenv("FAKE_CUDA_LINK");
    over_pcie = link && !strcmp(link, "pcie");
    memory_size = (uint64_t)env("FAKE_CUDA_MEMORY", 1l << 30);
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    if (!chosen) {
      for (int i = 0; i < physical; i++) visible[visible_count++] = i;
    } else {
      // As the real one: the list ends at the first entry that is no device.
      char *end;
      for (const char *at = chosen; *at && visible_count < MAX_DEVICES; at = *end == ',' ? end + 1 : end) {
        long device = strtol(at, &end, 10);
        if (end == at || device < 0 || device >= physical) break;
        visible[visible_count++] = (int)device;
      }
    }
    fake_initialized = true;
  }
  pthread_mutex_unlock(&fake_lock);
  return visible_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

int fake_device_count(void) { return visible_count; }
bool fake_peers_allowed(void) { return peers_allowed; }
uint64_t fake_memory_size(void) { return memory_size; }

int fake_physical(CUdevice device) { return device >= 0 && device < visible_count ? visible[device] : -1; }

int fake_ordinal(int physical) {
  for (int i = 0; i < visible_count; i++) {
    if (visible[i] == physical) return i;
  }
  return -1;
}

struct context *fake_context_of(int physical) { return contexts[physical]; }

API CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *count) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *count = visible_count;
  return CUDA_SUCCESS;
}

#define CHECK_DEVICE(device)                                                                 \
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;                                  \
  if (fake_physical(device) < 0) return fake_fail(CUDA_ERROR_INVALID_DEVICE, "%s: there is no device %d", __func__, device)

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  CHECK_DEVICE(ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  CHECK_DEVICE(device);
  snprintf(name, (size_t)length, "Fake GPU %d", fake_physical(device));
  return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  CHECK_DEVICE(device);
  *bytes = memory_size;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device) {
  CHECK_DEVICE(device);
  memset(uuid, 0xfa, 16);
  uuid[15] = (unsigned char)fake_physical(device);
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

API CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
  CHECK_DEVICE(device);
  if (length < 13) return fake_fail(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetPCIBusId: length=%d", length);
  snprintf(id, (size_t)length, "0000:%02X:00.0", 0xa0 + fake_physical(device));
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  unsigned domain, bus, slot, function;
  if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return CUDA_ERROR_INVALID_VALUE;
  int ordinal = domain || slot || function ? -1 : fake_ordinal((int)bus - 0xa0);
  if (ordinal < 0) return fake_fail(CUDA_ERROR_INVALID_DEVICE, "no device has the PCI bus id %s", id);
  *device = ordinal;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  CHECK_DEVICE(device);
  static const int known[][2] = {
      {1, 1024},   {2, 1024},    {3, 1024}, {4, 64},    {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152},
      {9, 65536},  {10, 32},     {15, 1},   {19, 1},         {31, 1},    {34, 0},    {38, 50 << 20},
      {39, 2048},  {40, 3},      {41, 1},   {50, 0},    {75, 9},         {76, 0},    {81, 233472}, {91, 1},
      {95, 1},     {97, 232448}, {99, 1},   {102, 1},   {103, 1},        {118, 100}, {122, 1},   {123, 1},   {124, 1}, {131, -1},
      {134, -1},
  };
  if (attribute == 16) {
    *value = (int)env("FAKE_CUDA_MULTIPROCESSORS", 4);
    return CUDA_SUCCESS;
  }
  *value = attribute == 33 ? 0xa0 + fake_physical(device) : 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i][0] == attribute) *value = known[i][1];
  }
  return CUDA_SUCCESS;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  CHECK_DEVICE(device);
  CHECK_DEVICE(peer);
  *can = peers_allowed && device != peer;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice device, CUdevice peer) {
  CHECK_DEVICE(device);
  CHECK_DEVICE(peer);
  if (device == peer) return fake_fail(CUDA_ERROR_INVALID_DEVICE, "one device has no link to itself");
  if (attribute < 1 || attribute > 5) return fake_fail(CUDA_ERROR_INVALID_VALUE, "P2P attribute %d", attribute);
  // Of an NVLink the rank is 0; all atomics work over it. Over PCIe some do.
  bool nvlink = peers_allowed && !over_pcie;
  *value = attribute == 1 ? !nvlink : attribute == 2 || attribute == 4 ? peers_allowed
           : attribute == 3 ? nvlink : peers_allowed && over_pcie;
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device) {
  CHECK_DEVICE(device);
  int physical = fake_physical(device);
  pthread_mutex_lock(&fake_lock);
  if (!contexts[physical]) {
    contexts[physical] = calloc(1, sizeof **context);
    contexts[physical]->physical = physical;
    fake_handle_add(contexts[physical], HANDLE_CONTEXT);
  }
  contexts[physical]->retained++;
  *context = contexts[physical];
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

// The structure stays, so that threads that have it current find out.
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  CHECK_DEVICE(device);
  int physical = fake_physical(device);
  pthread_mutex_lock(&fake_lock);
  struct context *gone = contexts[physical];
  if (!gone) {
    pthread_mutex_unlock(&fake_lock);
    return fake_fail(CUDA_ERROR_INVALID_CONTEXT, "device %d has no primary context to release", device);
  }
  if (--gone->retained == 0) {
    contexts[physical] = NULL;
    __atomic_store_n(&gone->dead, true, __ATOMIC_RELEASE);
  } else {
    gone = NULL;
  }
  pthread_mutex_unlock(&fake_lock);
  if (gone) {
    fake_streams_wake(gone);
    fake_streams_drain(gone);
    fake_ranges_of_context_gone(gone);
  }
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  CHECK_DEVICE(device);
  pthread_mutex_lock(&fake_lock);
  *flags = 0;
  *active = contexts[fake_physical(device)] != NULL;
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  CHECK_DEVICE(device);
  return flags > 0xff ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult fake_current(struct context **context) {
  if (!fake_initialized) return fake_fail(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
  if (!depth || !stack[depth - 1]) return fake_fail(CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
  *context = stack[depth - 1];
  if (__atomic_load_n(&(*context)->dead, __ATOMIC_ACQUIRE)) {
    return fake_fail(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context was released");
  }
  return __atomic_load_n(&(*context)->sticky, __ATOMIC_ACQUIRE);
}

static CUresult check_context(const struct context *context) {
  return !context || fake_handle_is(context, HANDLE_CONTEXT)
             ? CUDA_SUCCESS
             : fake_fail(CUDA_ERROR_INVALID_CONTEXT, "%p is no context", (const void *)context);
}

API CUresult cuCtxSetCurrent(struct context *context) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = check_context(context);
  if (result) return result;
  if (!depth) depth = 1;
  stack[depth - 1] = context;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(struct context **context) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *context = depth ? stack[depth - 1] : NULL;
  return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(struct context *context) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = context ? check_context(context) : CUDA_ERROR_INVALID_CONTEXT;
  if (result) return result;
  if (depth == STACK) return fake_fail(CUDA_ERROR_INVALID_VALUE, "pushed contexts are never popped");
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(struct context **context) {
  if (!depth || !stack[depth - 1]) return fake_fail(CUDA_ERROR_INVALID_CONTEXT, "there is no context to pop");
  if (context) *context = stack[depth - 1];
  stack[--depth] = NULL;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
  struct context *context;
  CUresult result = fake_current(&context);
  if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_NOT_INITIALIZED) return result;
  *device = fake_ordinal(context->physical);
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  struct context *context;
  CUresult result = fake_current(&context);
  if (result) return result;
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

size_t fake_stack(struct context *context) {
  size_t given = __atomic_load_n(&context->stack, __ATOMIC_ACQUIRE);
  return given ? given : 1024;
}

API CUresult cuCtxGetLimit(size_t *value, int limit) {
  struct context *context;
  CUresult result = fake_current(&context);
  if (result) return result;
  if (limit != 0) return CUDA_ERROR_INVALID_VALUE;
  *value = fake_stack(context);
  return CUDA_SUCCESS;
}

API CUresult cuCtxSetLimit(int limit, size_t value) {
  struct context *context;
  CUresult result = fake_current(&context);
  if (result) return result;
  if (limit != 0 || value == 0) return CUDA_ERROR_INVALID_VALUE;
  __atomic_store_n(&context->stack, value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void) {
  struct context *context;
  CUresult result = fake_current(&context);
  if (result) return result;
  fake_streams_drain(context);
  return __atomic_load_n(&context->sticky, __ATOMIC_ACQUIRE);
}

API CUresult cuCtxEnablePeerAccess(struct context *peer, unsigned flags) {
  struct context *context;
  CUresult result = fake_current(&context);
  if (result) return result;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!peer || check_context(peer) || peer->dead) return fake_fail(CUDA_ERROR_INVALID_CONTEXT, "no such peer context");
  if (peer->physical == context->physical) return fake_fail(CUDA_ERROR_INVALID_DEVICE, "a GPU is no peer of itself");
  if (!peers_allowed) return fake_fail(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "FAKE_CUDA_NO_PEER is set");
  pthread_mutex_lock(&fake_lock);
  bool already = context->peers[peer->physical];
  context->peers[peer->physical] = true;
  pthread_mutex_unlock(&fake_lock);
  return already ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

API CUresult cuCtxDisablePeerAccess(struct context *peer) {
  struct context *context;
  CUresult result = fake_current(&context);
  if (result) return result;
  if (!peer || check_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&fake_lock);
  bool was = context->peers[peer->physical];
  context->peers[peer->physical] = false;
  pthread_mutex_unlock(&fake_lock);
  return was ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

static const struct {
  CUresult code;
  const char *name, *text;
} errors[] = {
#define ERROR(name, text) {name, #name, text}
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is registered already"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory is not registered"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread"),
};

static CUresult describe(CUresult code, const char **text, bool name) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].code == code) {
      *text = name ? errors[i].name : errors[i].text;
      return CUDA_SUCCESS;
    }
  }
  *text = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult code, const char **name) { return describe(code, name, true); }
API CUresult cuGetErrorString(CUresult code, const char **text) { return describe(code, text, false); }
