// SPDX-License-Identifier: Apache-2.0
/*
 * A collective network for tests: ranks of one process, which sum floats. Built into the library of
 * test_net.c, in the same version of the interface, NET_VERSION. Faults, each by a macro:
 *   CONNECT_MS  milliseconds that connect takes
 *   CLOSE_MS    milliseconds that a close takes
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CONNECT_MS
#define CONNECT_MS 0
#endif
#ifndef CLOSE_MS
#define CLOSE_MS 0
#endif

enum { OK = 0, INTERNAL = 3, USAGE = 5, MAX_RANKS = 8, IN_FLIGHT = 8, FLOAT32 = 7, SUM = 0, PROPERTY_BYTES = 48 };

#if NET_VERSION >= 9
typedef size_t Count;
#else
typedef int Count;
#endif
#if NET_VERSION >= 8
typedef size_t RegSize;
#else
typedef int RegSize;
#endif

typedef void (*Logger)(int, unsigned long, const char *, int, const char *, ...);

/* A reduction, which is done when all ranks have posted it, and over when all have found that. */
typedef struct {
  int posted;
  int taken;
  uint64_t count;
  const float *from[MAX_RANKS];
  float *to[MAX_RANKS];
} Reduction;

typedef struct {
  int users;
  int n_ranks;
  Reduction reductions[IN_FLIGHT];
} Group;

typedef struct Comm Comm;

typedef struct {
  Comm *comm;
  Reduction *reduction;
} Request;

struct Comm {
  Group *group;
  int rank;
  unsigned posted;
  int polls;
  Request requests[IN_FLIGHT];
};

typedef struct {
  char *start;
  size_t size;
} Memory;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int start(Logger logger) {
  logger(2, ~0UL, __FILE__, __LINE__, "collective init of v%d", NET_VERSION);
  return OK;
}

static int devices(int *count) {
  *count = 1;
  return OK;
}

/* Only what all versions begin with; the rest is zero. */
static int get_properties(int device, void *properties) {
  struct {
    char *name;
    char *path;
    uint64_t guid;
    int pointers;
  } common = {"coll0", NULL, 90 + (uint64_t)device, 1};
  memcpy(properties, &common, sizeof common - sizeof(int));
  return OK;
}

static int do_listen(void *handle, void **comm) {
  Group *group = calloc(1, sizeof *group);
  group->users = 1;
  memcpy(handle, &group, sizeof group);
  *comm = group;
  return OK;
}

static int join(void *handles[], int n_ranks, int rank, void *listener, void **comm) {
  Group *own;
  Group *group;
  memcpy(&own, handles[rank], sizeof own);
  memcpy(&group, handles[0], sizeof group);
  if (own != listener || n_ranks > MAX_RANKS) {
    return USAGE;
  }
  Comm *joined = calloc(1, sizeof *joined);
  joined->group = group;
  joined->rank = rank;
  pthread_mutex_lock(&mutex);
  group->n_ranks = n_ranks;
  group->users++;
  pthread_mutex_unlock(&mutex);
  usleep(1000 * (useconds_t)CONNECT_MS);
  *comm = joined;
  return OK;
}

static int reduce_support(int type, int op, int *supported) {
  *supported = type == FLOAT32 && op == SUM;
  return OK;
}

static int reg_mr(void *comm, void *data, RegSize size, int type, void **memory) {
  (void)comm;
  Memory *registered = malloc(sizeof *registered);
  registered->start = data;
  registered->size = (size_t)size;
  *memory = registered;
  return type == 1 ? OK : USAGE;
}

static int dereg_mr(void *comm, void *memory) {
  (void)comm;
  free(memory);
  return OK;
}

static void post(Group *group, Reduction *reduction, int rank, const float *from, float *to,
                 uint64_t count) {
  reduction->from[rank] = from;
  reduction->to[rank] = to;
  reduction->count = count;
  reduction->posted++;
  for (uint64_t i = 0; reduction->posted == group->n_ranks && i < count; i++) {
    float sum = 0;
    for (int each = 0; each < group->n_ranks; each++) {
      sum += reduction->from[each][i];
    }
    for (int each = 0; each < group->n_ranks; each++) {
      reduction->to[each][i] = sum;
    }
  }
}

static int iallreduce(void *coll_comm, void *from, void *to, Count count, int type, int op,
                      void *from_memory, void *to_memory, void **request) {
  Comm *comm = coll_comm;
  Group *group = comm->group;
  *request = NULL;
  if (type != FLOAT32 || op != SUM || ((Memory *)from_memory)->size < count * sizeof(float) ||
      ((Memory *)to_memory)->size < count * sizeof(float)) {
    return INTERNAL;
  }
  if (comm->polls++ % 3 < 2) {
    return OK; /* not now */
  }
  unsigned place = comm->posted % IN_FLIGHT;
  Reduction *reduction = &group->reductions[place];
  pthread_mutex_lock(&mutex);
  int is_free = reduction->from[comm->rank] == NULL;
  if (is_free) {
    post(group, reduction, comm->rank, from, to, (uint64_t)count);
  }
  pthread_mutex_unlock(&mutex);
  if (is_free) {
    comm->posted++;
    comm->requests[place] = (Request){comm, reduction};
    *request = &comm->requests[place];
  }
  return OK;
}

static int iflush(void *coll_comm, void *data, int size, void *memory, void **request) {
  (void)coll_comm;
  (void)data;
  *request = NULL;
  return size > 0 && memory != NULL ? OK : INTERNAL;
}

static int test(void *tested, int *done, int *size) {
  Request *request = tested;
  Reduction *reduction = request->reduction;
  int n_ranks = request->comm->group->n_ranks;
  pthread_mutex_lock(&mutex);
  *done = reduction->posted == n_ranks;
  if (*done && ++reduction->taken == n_ranks) {
    memset(reduction, 0, sizeof *reduction);
  }
  pthread_mutex_unlock(&mutex);
  *size = 0;
  return OK;
}

static void release(Group *group) {
  pthread_mutex_lock(&mutex);
  int left = --group->users;
  pthread_mutex_unlock(&mutex);
  if (left == 0) {
    free(group);
  }
}

static int close_coll(void *closed) {
  Comm *comm = closed;
  usleep(1000 * (useconds_t)CLOSE_MS);
  release(comm->group);
  free(comm);
  return OK;
}

static int close_listen(void *listener) {
  usleep(1000 * (useconds_t)CLOSE_MS);
  release(listener);
  return OK;
}

#if NET_VERSION >= 11
static int inits;

static int init(void **context, uint64_t job, Logger logger) {
  *context = &inits;
  inits++;
  return job == 0 ? INTERNAL : start(logger);
}
static int finalize(void *context) { return context == &inits && inits-- > 0 ? OK : INTERNAL; }
static int coll_listen(void *context, int device, void *handle, void **comm) {
  (void)device;
  return context == &inits ? do_listen(handle, comm) : INTERNAL;
}
#else
static int init(Logger logger) { return start(logger); }
static int coll_listen(int device, void *handle, void **comm) {
  (void)device;
  return do_listen(handle, comm);
}
#endif

#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclCollNetPlugin_v, version)

__attribute__((visibility("default"))) struct {
  const char *name;
  void *functions[14 + (NET_VERSION >= 8) * 2 + (NET_VERSION >= 9) + (NET_VERSION >= 11)];
} SYMBOL(NET_VERSION) = {
    "testcoll",
    {init, devices, get_properties, coll_listen, join, reduce_support, reg_mr, NULL, dereg_mr,
     iallreduce,
#if NET_VERSION >= 8
     NULL, NULL,
#endif
     iflush, test, close_coll, close_listen,
#if NET_VERSION >= 9
     NULL,
#endif
#if NET_VERSION >= 11
     finalize,
#endif
    }};
