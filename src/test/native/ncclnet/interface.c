// SPDX-License-Identifier: Apache-2.0
// NCCL's interface, version by version: functions by their numbers, properties by their offsets.
#define _GNU_SOURCE
#include "interface.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int version;
const char *library_path;
void *library;
static void **net;
static void *context;

void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  fflush(stdout);
  _exit(1);
}

static void log_line(int level, unsigned long flags, const char *where, int line, const char *format, ...) {
  (void)flags;
  (void)where;
  (void)line;
  va_list arguments;
  va_start(arguments, format);
  char text[4096];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  printf("log %d: %s\n", level, text);
  fflush(stdout);
}

// ---- the interface: what differs between versions is here ----

void load(void) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
  library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library, "dlopen: %s", dlerror());
  net = dlsym(library, symbol);
  CHECK(net, "no %s", symbol);
  CHECK(strcmp(net[NAME], "fluxccl") == 0, "its name is %s", (char *)net[NAME]);
}

int init(void) {
  typedef int (*init_v6)(void *);
  typedef int (*init_v10)(void *, void *);
  typedef int (*init_v11)(void **, uint64_t, void *, void *, void *);
  if (version >= 11) {
    int traffic_class = -1;
    context = NULL;
    int result = ((init_v11)net[INIT])(&context, 77, &traffic_class, (void *)log_line, NULL);
    CHECK(result || context, "no context");
    return result;
  }
  return version == 10 ? ((init_v10)net[INIT])((void *)log_line, NULL) : ((init_v6)net[INIT])((void *)log_line);
}

int try_finalize(void *given) {
  return version >= 11 ? ((int (*)(void *))net[FINALIZE])(given) : 0;
}

void finalize(void) {
  int result = try_finalize(context);
  CHECK(result == 0, "finalize: %d", result);
}

int devices(int *count) {
  return ((int (*)(int *))net[DEVICES])(count);
}

int do_listen(int device, void *handle, void **comm) {
  return version >= 11 ? ((int (*)(void *, int, void *, void **))net[LISTEN])(context, device, handle, comm)
                       : ((int (*)(int, void *, void **))net[LISTEN])(device, handle, comm);
}

int do_connect(int device, void *handle, void **comm) {
  void *offload = NULL;
  int traffic_class = -1;
  if (version >= 11) {
    return ((int (*)(void *, int, void *, void **, void **))net[CONNECT])(context, device, handle, comm, &offload);
  }
  if (version == 10) {
    return ((int (*)(int, void *, void *, void **, void **))net[CONNECT])(device, &traffic_class, handle, comm, &offload);
  }
  return version >= 7 ? ((int (*)(int, void *, void **, void **))net[CONNECT])(device, handle, comm, &offload)
                      : ((int (*)(int, void *, void **))net[CONNECT])(device, handle, comm);
}

int do_accept(void *listener, void **comm) {
  void *offload = NULL;
  return version >= 7 ? ((int (*)(void *, void **, void **))net[ACCEPT])(listener, comm, &offload)
                      : ((int (*)(void *, void **))net[ACCEPT])(listener, comm);
}

void *reg(void *comm, void *data, size_t size) {
  void *memory = NULL;
  int result = version >= 8 ? ((int (*)(void *, void *, size_t, int, void **))net[REG_MR])(comm, data, size, PTR_HOST, &memory)
                            : ((int (*)(void *, void *, int, int, void **))net[REG_MR])(comm, data, (int)size, PTR_HOST, &memory);
  CHECK(result == 0, "regMr: %d", result);
  return memory;
}

void dereg(void *comm, void *memory) {
  int result = ((int (*)(void *, void *))net[DEREG_MR])(comm, memory);
  CHECK(result == 0, "deregMr: %d", result);
}

int isend_tagged(void *comm, void *data, size_t size, int tag, void *memory, void **request) {
  if (version >= 10) {
    return ((int (*)(void *, void *, size_t, int, void *, void *, void **))net[ISEND])(comm, data, size, tag, memory, NULL, request);
  }
  return version == 9 ? ((int (*)(void *, void *, size_t, int, void *, void **))net[ISEND])(comm, data, size, tag, memory, request)
                      : ((int (*)(void *, void *, int, int, void *, void **))net[ISEND])(comm, data, (int)size, tag, memory, request);
}

int isend(void *comm, void *data, size_t size, void *memory, void **request) {
  return isend_tagged(comm, data, size, 0, memory, request);
}

int irecv_group(void *comm, int n, void **data, size_t *sizes, int *tags, void **memories, void **request) {
  int narrow[GROUP] = {0};
  void *profiled[GROUP] = {NULL};
  for (int i = 0; i < n && i < GROUP; i++) {
    narrow[i] = (int)sizes[i];
  }
  // As NCCL has it where it allows a receive to be without a request.
  *request = (void *)1;
  if (version >= 10) {
    return ((int (*)(void *, int, void **, size_t *, int *, void **, void **, void **))net[IRECV])(comm, n, data, sizes, tags,
                                                                                                   memories, profiled, request);
  }
  return version == 9
             ? ((int (*)(void *, int, void **, size_t *, int *, void **, void **))net[IRECV])(comm, n, data, sizes, tags, memories, request)
             : ((int (*)(void *, int, void **, int *, int *, void **, void **))net[IRECV])(comm, n, data, narrow, tags, memories, request);
}

int irecv(void *comm, void *data, size_t size, void *memory, void **request) {
  int tag = 0;
  return irecv_group(comm, 1, &data, &size, &tag, &memory, request);
}

int test(void *request, int *done, int *sizes) {
  return ((int (*)(void *, int *, int *))net[TEST])(request, done, sizes);
}

// NCCL calls this after each receive, once the GPU has consumed the data.
void consumed(void *comm, void *request) {
  if (version >= 7 && net[IRECV_CONSUMED]) {
    int result = ((int (*)(void *, int, void *))net[IRECV_CONSUMED])(comm, 1, request);
    CHECK(result == 0, "irecvConsumed: %d", result);
  }
}

void do_close(int function, void *comm) {
  int result = ((int (*)(void *))net[function])(comm);
  CHECK(result == 0, "close (%d): %d", function, result);
}

void check_properties(void) {
  // Offsets of speed, maxRecvs, and of what was added later.
  static const int speed[] = {28, 28, 32, 36, 36, 36, 36};
  static const int receives[] = {44, 44, 48, 52, 52, 52, 52};
  _Alignas(8) char properties[256];
  memset(properties, 0x5a, sizeof properties);
  int count = 0;
  CHECK(devices(&count) == 0 && count >= 1, "devices: %d", count);
  int result = ((int (*)(int, void *))net[PROPERTIES])(0, properties);
  CHECK(result == 0, "getProperties: %d", result);
#define AT(type, offset) (*(type *)(properties + (offset)))
  CHECK(strlen(AT(char *, 0)) > 0, "no name");
  CHECK(AT(char *, 8) == NULL || strncmp(AT(char *, 8), "/sys/", 5) == 0, "pciPath %s", AT(char *, 8));
  CHECK(AT(int, 24) == PTR_HOST, "ptrSupport %d", AT(int, 24));
  CHECK(AT(int, speed[version - 6]) > 0, "speed %d", AT(int, speed[version - 6]));
  CHECK(AT(int, receives[version - 6]) == GROUP, "maxRecvs %d", AT(int, receives[version - 6]));
  if (version >= 9) {
    CHECK(AT(int, 64) == 1 && AT(int, 68) == 0, "vProps %d, %d", AT(int, 64), AT(int, 68));
    CHECK(AT(size_t, version == 12 ? 104 : 88) >= 1 << 30, "maxP2pBytes");
  }
  if (version == 12) {
    CHECK(AT(int16_t, 124) == -1 && AT(int16_t, 126) == -1, "rail and plane");
  }
  static const int end[] = {48, 56, 64, 104, 104, 112, 128};
  CHECK(properties[end[version - 6]] == 0x5a, "it wrote behind the properties");
}
