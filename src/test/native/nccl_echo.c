// SPDX-License-Identifier: Apache-2.0
// An NCCL that communicates nothing: each call is a line of the file PATH.log beside the library's own PATH.
// A file PATH.mischief with a function's name and a number lets that function fail with it; with "hang" in
// place of the number it waits until its communicator is aborted.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, ID_BYTES = 128 };

struct id {
  char internal[ID_BYTES];
};

struct communicator {
  int rank;
  volatile int aborted;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static FILE *beside(const char *suffix, const char *mode) {
  Dl_info info;
  char path[4096];
  if (dladdr((void *)beside, &info) == 0) {
    abort();
  }
  snprintf(path, sizeof path, "%s%s", info.dli_fname, suffix);
  return fopen(path, mode);
}

static int called(struct communicator *comm, const char *name, const char *form, ...) {
  pthread_mutex_lock(&lock);
  FILE *log = beside(".log", "a");
  if (comm != NULL) {
    fprintf(log, "%d ", comm->rank);
  }
  fputs(name, log);
  va_list arguments;
  va_start(arguments, form);
  vfprintf(log, form, arguments);
  va_end(arguments);
  fputc('\n', log);
  fclose(log);
  char function[64] = "";
  char result[64] = "";
  FILE *mischief = beside(".mischief", "r");
  if (mischief != NULL) {
    if (fscanf(mischief, "%63s %63s", function, result) != 2) {
      function[0] = '\0';
    }
    fclose(mischief);
  }
  pthread_mutex_unlock(&lock);
  if (strcmp(function, name) != 0) {
    return SUCCESS;
  }
  if (strcmp(result, "hang") != 0) {
    return atoi(result);
  }
  while (comm == NULL || !comm->aborted) {
    usleep(1000);
  }
  return SYSTEM_ERROR;
}

int ncclGetVersion(int *version) {
  *version = 22809;
  return SUCCESS;
}

const char *ncclGetErrorString(int result) {
  return result == 3 ? "internal error - please report" : "unhandled echo";
}

int ncclGetUniqueId(struct id *id) {
  memset(id, 7, sizeof *id);
  return called(NULL, "ncclGetUniqueId", "");
}

int ncclCommInitRank(struct communicator **made, int count, struct id id, int rank) {
  struct communicator *comm = calloc(1, sizeof *comm);
  comm->rank = rank;
  *made = comm;
  return called(comm, "ncclCommInitRank", " %d id=%d..%d", count, id.internal[0],
                id.internal[ID_BYTES - 1]);
}

int ncclCommDestroy(struct communicator *comm) { return called(comm, "ncclCommDestroy", ""); }

int ncclCommAbort(struct communicator *comm) {
  int result = called(comm, "ncclCommAbort", "");
  comm->aborted = 1;
  return result;
}

int ncclCommGetAsyncError(struct communicator *comm, int *result) {
  (void)comm;
  *result = SUCCESS;
  return SUCCESS;
}

// A function of the driver, which the process has loaded.
static void *driver(const char *name) {
  return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

int ncclMemAlloc(void **memory, size_t bytes) {
  int (*allocate)(void **, size_t);
  *(void **)&allocate = driver("cuMemAlloc_v2");
  int result = allocate(memory, bytes);
  return result == SUCCESS ? called(NULL, "ncclMemAlloc", " %zu", bytes) : result;
}

int ncclMemFree(void *memory) {
  int (*release)(void *);
  *(void **)&release = driver("cuMemFree_v2");
  int result = release(memory);
  return result == SUCCESS ? called(NULL, "ncclMemFree", "") : result;
}

int ncclCommWindowRegister(struct communicator *comm, void *memory, size_t bytes, void **window,
                           int flags) {
  *window = memory;
  return called(comm, "ncclCommWindowRegister", " %zu %d", bytes, flags);
}

int ncclCommWindowDeregister(struct communicator *comm, void *window) {
  (void)window;
  return called(comm, "ncclCommWindowDeregister", "");
}

int ncclGroupStart(void) { return called(NULL, "ncclGroupStart", ""); }

int ncclGroupEnd(void) { return called(NULL, "ncclGroupEnd", ""); }

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                  struct communicator *comm, void *stream) {
  return called(comm, "ncclAllReduce", " %p %p %zu %d %d on %p", in, out, count, type, op, stream);
}

int ncclAllGather(const void *in, void *out, size_t count, int type, struct communicator *comm,
                  void *stream) {
  return called(comm, "ncclAllGather", " %p %p %zu %d on %p", in, out, count, type, stream);
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op,
                      struct communicator *comm, void *stream) {
  return called(comm, "ncclReduceScatter", " %p %p %zu %d %d on %p", in, out, count, type, op,
                stream);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                  struct communicator *comm, void *stream) {
  return called(comm, "ncclBroadcast", " %p %p %zu %d %d on %p", in, out, count, type, root,
                stream);
}

int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root,
               struct communicator *comm, void *stream) {
  return called(comm, "ncclReduce", " %p %p %zu %d %d %d on %p", in, out, count, type, op, root,
                stream);
}

int ncclSend(const void *in, size_t count, int type, int peer, struct communicator *comm,
             void *stream) {
  return called(comm, "ncclSend", " %p %zu %d to %d on %p", in, count, type, peer, stream);
}

int ncclRecv(void *out, size_t count, int type, int peer, struct communicator *comm,
             void *stream) {
  return called(comm, "ncclRecv", " %p %zu %d from %d on %p", out, count, type, peer, stream);
}
