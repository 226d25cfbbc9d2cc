// SPDX-License-Identifier: Apache-2.0
/*
 * A network plugin for tests: messages over TCP of the loopback, in one version of the interface.
 * Knows nothing of the library that loads it: its structs are its own.
 *
 * NET_VERSION at compile time: 6 to 12. Faults, each by a macro or by the environment variable of
 * that name with TESTNET_ before it:
 *   NULL_REQUESTS  number of isend and irecv of a connection that return no request
 *   FAIL_AFTER     number of successful tests after which each call fails with FAIL_CODE
 *   FAIL_CODE      2 by default
 *   INIT_CODE      the result of init
 *   DEVICES        number of devices, 2 by default
 *   NO_SIZES       1: test never writes sizes
 *   POINTERS       supported memory: 1 host, 3 also CUDA's, 7 also by dma-buf. Data that is received
 *                  for a GPU arrives at iflush, not before.
 *   DMABUF         1: a GPU's memory is registered by dma-buf only; 2: dma-bufs are refused
 *   GROUP          the most receives of a group: 8, or fewer
 *   LOG_THREAD     1: a separate thread logs three lines
 *   STUCK_MS       milliseconds that isend takes
 *   CLOSE_MS       milliseconds that a close takes
 *   TAKE_SIGNALS   1: takes signals of the JVM when it is loaded, and again in init, as libraries under
 *                  plugins do; listen then fails where one of these handlers would run
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef NET_VERSION
#define NET_VERSION 11
#endif
#ifndef NULL_REQUESTS
#define NULL_REQUESTS 0
#endif
#ifndef FAIL_AFTER
#define FAIL_AFTER -1
#endif
#ifndef FAIL_CODE
#define FAIL_CODE 2
#endif
#ifndef INIT_CODE
#define INIT_CODE 0
#endif
#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef NO_SIZES
#define NO_SIZES 0
#endif
#ifndef POINTERS
#define POINTERS 1
#endif
#ifndef DMABUF
#define DMABUF 0
#endif
#ifndef GROUP
#define GROUP 8
#endif
#ifndef LOG_THREAD
#define LOG_THREAD 0
#endif
#ifndef STUCK_MS
#define STUCK_MS 0
#endif
#ifndef CLOSE_MS
#define CLOSE_MS 0
#endif

#ifndef TAKE_SIGNALS
#define TAKE_SIGNALS 0
#endif

enum { OK = 0, SYSTEM = 2, INTERNAL = 3, USAGE = 5, REMOTE = 6 };
enum { MAX_REQUESTS = NET_VERSION == 6 ? 8 : 32, MAX_GROUP = 8, MAGIC = 0x544e4554 };

#if NET_VERSION >= 9
typedef size_t Size;
#else
typedef int Size;
#endif
#if NET_VERSION >= 8
typedef size_t RegSize;
#else
typedef int RegSize;
#endif

typedef void (*Logger)(int, unsigned long, const char *, int, const char *, ...);

static Logger logger;
static int fail_after;

static int fault(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value == NULL ? otherwise : atoi(value);
}

typedef struct {
  int socket;
  int nulls;
  int done_tests;
} Base;

/* The parts of a message that are not there yet: a header of size and tag, then the bytes. */
typedef struct {
  uint64_t size;
  int64_t tag;
} Header;

typedef struct Comm Comm;

typedef struct {
  Comm *comm;
  int used;
  int finished;
  int flush_polls;
  int n;
  int arrived;
  char *data[MAX_GROUP];
  uint64_t sizes[MAX_GROUP];
  int tags[MAX_GROUP];
  int filled[MAX_GROUP];
  /* Of a GPU: the memory, and where its bytes are meanwhile. */
  char *device;
  char *bounce;
} Request;

struct Comm {
  Base base;
  int sending;
  int limit;
  unsigned head, tail;
  Request *queue[MAX_REQUESTS * MAX_GROUP];
  Header header;
  uint64_t at; /* bytes of the present message, header first */
  int part;
  int failed;
  Request requests[MAX_REQUESTS * MAX_GROUP + MAX_REQUESTS];
  /* Data that was received for a GPU and is not flushed. */
  Request unflushed[MAX_REQUESTS];
};

typedef struct {
  int socket;
  int accepted;
  int nothing;
} Listener;

typedef struct {
  uint32_t magic;
  uint16_t port;
  uint16_t device;
  /* The connecting side's, kept between calls. */
  int32_t socket;
  int32_t tries;
} Handle;

static const int TAKEN[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};

static void end_process(int number) {
  (void)number;
  _exit(99);
}

static void __attribute__((constructor)) take_signals(void) {
  for (size_t i = 0; TAKE_SIGNALS && i < sizeof TAKEN / sizeof *TAKEN; i++) {
    struct sigaction action = {.sa_handler = end_process};
    sigaction(TAKEN[i], &action, NULL);
  }
}

static int has_signals(void) {
  int found = 0;
  for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++) {
    struct sigaction action;
    found |= sigaction(TAKEN[i], NULL, &action) == 0 && action.sa_handler == end_process;
  }
  return found;
}

static void *log_lines(void *argument) {
  (void)argument;
  for (int i = 0; i < 3; i++) {
    logger(2, ~0UL, __FILE__, __LINE__, "thread line %d of %s", i, "three");
  }
  return NULL;
}

static int start(Logger given) {
  logger = given;
  if (TAKE_SIGNALS && has_signals()) {
    return SYSTEM;
  }
  take_signals();
  fail_after = fault("TESTNET_FAIL_AFTER", FAIL_AFTER);
  logger(1, ~0UL, __FILE__, __LINE__, "testnet version %d", NET_VERSION);
  logger(2, ~0UL, __FILE__, __LINE__, "init of v%d: %s %d %.1f", NET_VERSION, "warn", 7, 2.5);
  logger(3, ~0UL, __FILE__, __LINE__, "an info line");
  if (fault("TESTNET_LOG_THREAD", LOG_THREAD)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, log_lines, NULL) == 0) {
      pthread_join(thread, NULL);
    }
  }
  return fault("TESTNET_INIT_CODE", INIT_CODE);
}

static int devices(int *count) {
  *count = fault("TESTNET_DEVICES", DEVICES);
  return OK;
}

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
#if NET_VERSION >= 8
  int regIsGlobal;
#endif
#if NET_VERSION >= 9
  int forceFlush;
#endif
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
#if NET_VERSION >= 7
  int netDeviceType;
  int netDeviceVersion;
#endif
#if NET_VERSION >= 9
  struct {
    int ndevs;
    int devs[NET_VERSION >= 12 ? 8 : 4];
  } vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
#endif
#if NET_VERSION >= 11
  int maxMultiRequestSize;
#endif
#if NET_VERSION >= 12
  int16_t railId;
  int16_t planeId;
#endif
} Properties;

static int get_properties(int device, Properties *to) {
  static char *names[] = {"test0", "test1", "test2", "test3"};
  memset(to, 0, sizeof *to);
  to->name = names[device & 3];
  to->pciPath = device == 1 ? "/sys/class/net/lo" : NULL;
  to->guid = 40 + (uint64_t)device;
  to->ptrSupport = fault("TESTNET_POINTERS", POINTERS);
  to->speed = 10000;
  to->port = 1 + device;
  to->latency = 1.5f;
  to->maxComms = 1024;
  to->maxRecvs = fault("TESTNET_GROUP", GROUP);
#if NET_VERSION >= 8
  to->regIsGlobal = device == 1;
#endif
#if NET_VERSION >= 9
  to->forceFlush = 1;
  to->maxP2pBytes = (size_t)1 << 40;
  to->maxCollBytes = (size_t)1 << 40;
#endif
#if NET_VERSION >= 12
  to->railId = (int16_t)device;
  to->planeId = -1;
#endif
  return OK;
}

static int do_listen(int device, void *handle, void **comm) {
  if (TAKE_SIGNALS && has_signals()) {
    return SYSTEM;
  }
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (s < 0 || bind(s, (struct sockaddr *)&address, sizeof address) != 0 || listen(s, 4) != 0 ||
      getsockname(s, (struct sockaddr *)&address, &length) != 0) {
    return SYSTEM;
  }
  Listener *listener = calloc(1, sizeof *listener);
  listener->socket = s;
  Handle *to = handle;
  to->magic = MAGIC;
  to->port = address.sin_port;
  to->device = (uint16_t)device;
  *comm = listener;
  return OK;
}

static Comm *new_comm(int s, int sending) {
  int on = 1;
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Comm *comm = calloc(1, sizeof *comm);
  comm->base.socket = s;
  comm->base.nulls = fault("TESTNET_NULL_REQUESTS", NULL_REQUESTS);
  comm->sending = sending;
  comm->limit = sending ? MAX_REQUESTS * fault("TESTNET_GROUP", GROUP) : MAX_REQUESTS;
  return comm;
}

/* Not connected before the third call, with its state in the handle. */
static int do_connect(void *handle, void **comm) {
  Handle *to = handle;
  *comm = NULL;
  if (to->magic != MAGIC) {
    return USAGE;
  }
  if (to->tries++ == 0) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = to->port};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (to->socket < 0 || (connect(to->socket, (struct sockaddr *)&address, sizeof address) != 0 &&
                           errno != EINPROGRESS)) {
      return REMOTE;
    }
    return OK;
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(to->socket, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    close(to->socket);
    return REMOTE;
  }
  struct sockaddr_in peer;
  length = sizeof peer;
  if (to->tries > 2 && getpeername(to->socket, (struct sockaddr *)&peer, &length) == 0) {
    *comm = new_comm(to->socket, 1);
  }
  return OK;
}

static int do_accept(void *listen_comm, void **comm) {
  Listener *listener = listen_comm;
  *comm = NULL;
  int s = accept4(listener->socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (s >= 0) {
    *comm = new_comm(s, 0);
    return OK;
  }
  return errno == EAGAIN || errno == EWOULDBLOCK ? OK : SYSTEM;
}

typedef struct {
  char *start;
  size_t size;
  int type;
} Memory;

static int cuda_copy(const char *function, const void *to, const void *from, size_t size) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*copy)(const void *, const void *, size_t) = NULL;
  void *found = driver == NULL ? NULL : dlsym(driver, function);
  memcpy(&copy, &found, sizeof copy);
  return copy == NULL ? INTERNAL : copy(to, from, size) == 0 ? OK : 1;
}

static int is_of_gpu(const void *memory) { return ((const Memory *)memory)->type == 2; }

static int reg(void *comm, void *data, size_t size, int type, void **memory) {
  if (comm == NULL || (type != 1 && !(fault("TESTNET_POINTERS", POINTERS) & type))) {
    return USAGE;
  }
  Memory *registered = malloc(sizeof *registered);
  registered->start = data;
  registered->size = size;
  registered->type = type;
  *memory = registered;
  return OK;
}

static int reg_mr(void *comm, void *data, RegSize size, int type, void **memory) {
  if (DMABUF == 1 && type == 2) {
    return SYSTEM;
  }
  return reg(comm, data, (size_t)size, type, memory);
}

static int reg_mr_dma_buf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                          void **memory) {
  struct stat file;
  if (DMABUF == 2) {
    return SYSTEM;
  }
  /* A GPU's dma-buf is a file here, in which the memory is at the offset. */
  if (type == 2 && (fstat(fd, &file) != 0 || (uint64_t)file.st_size < offset + size)) {
    return USAGE;
  }
  return fd < 0 ? USAGE : reg(comm, data, size, type, memory);
}

static int dereg_mr(void *comm, void *memory) {
  (void)comm;
  free(memory);
  return OK;
}

static int within(const void *memory, const void *data, uint64_t size) {
  const Memory *registered = memory;
  const char *start = data;
  return registered != NULL && start >= registered->start &&
         size <= registered->size - (size_t)(start - registered->start);
}

static Request *new_request(Comm *comm) {
  unsigned busy = comm->tail - comm->head;
  if ((int)busy >= comm->limit) {
    return NULL;
  }
  for (size_t i = 0; i < sizeof comm->requests / sizeof comm->requests[0]; i++) {
    Request *request = &comm->requests[i];
    if (!request->used) {
      memset(request, 0, sizeof *request);
      request->used = 1;
      request->comm = comm;
      return request;
    }
  }
  return NULL;
}

static void enqueue(Comm *comm, Request *request) {
  comm->queue[comm->tail++ % (MAX_REQUESTS * MAX_GROUP)] = request;
}

/* Returns the bytes that a socket call moved; -1: try again, -2: the socket is broken. */
static ssize_t moved(ssize_t bytes) {
  if (bytes > 0) {
    return bytes;
  }
  return bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? -1 : -2;
}

/* Moves what is left of header and data; 1 when the message is through. */
static int move_message(Comm *comm, char *data, uint64_t size) {
  while (comm->at < sizeof(Header) + size) {
    int in_header = comm->at < sizeof(Header);
    char *from = in_header ? (char *)&comm->header + comm->at : data + (comm->at - sizeof(Header));
    size_t left = in_header ? sizeof(Header) - comm->at : sizeof(Header) + size - comm->at;
    ssize_t bytes = comm->sending ? moved(send(comm->base.socket, from, left, MSG_NOSIGNAL))
                                  : moved(recv(comm->base.socket, from, left, 0));
    if (bytes < 0) {
      comm->failed = bytes == -2 ? REMOTE : comm->failed;
      return 0;
    }
    comm->at += (uint64_t)bytes;
    if (!comm->sending && comm->at == sizeof(Header)) {
      return 0; /* the caller learns where it goes */
    }
  }
  return 1;
}

static void next_message(Comm *comm) { comm->at = 0; }

static void progress_send(Comm *comm) {
  while (comm->head != comm->tail && comm->failed == 0) {
    Request *request = comm->queue[comm->head % (MAX_REQUESTS * MAX_GROUP)];
    if (comm->at == 0) {
      comm->header.size = request->sizes[0];
      comm->header.tag = request->tags[0];
    }
    if (!move_message(comm, request->data[0], request->sizes[0])) {
      return;
    }
    next_message(comm);
    request->finished = 1;
    comm->head++;
  }
}

static int place_of(const Request *request, int64_t tag) {
  for (int i = 0; i < request->n; i++) {
    if (!request->filled[i] && (request->n == 1 || request->tags[i] == tag)) {
      return i;
    }
  }
  return -1;
}

static void progress_receive(Comm *comm) {
  while (comm->head != comm->tail && comm->failed == 0) {
    Request *request = comm->queue[comm->head % (MAX_REQUESTS * MAX_GROUP)];
    if (comm->at < sizeof(Header)) {
      move_message(comm, NULL, 0);
      if (comm->at < sizeof(Header)) {
        return;
      }
      comm->part = place_of(request, comm->header.tag);
      if (comm->part < 0 || comm->header.size > request->sizes[comm->part]) {
        comm->failed = USAGE;
        return;
      }
    }
    int part = comm->part;
    if (!move_message(comm, request->data[part], comm->header.size)) {
      return;
    }
    request->sizes[part] = comm->header.size;
    request->filled[part] = 1;
    next_message(comm);
    if (++request->arrived == request->n) {
      request->finished = 1;
      comm->head++;
    }
  }
}

static void progress(Comm *comm) {
  if (comm->sending) {
    progress_send(comm);
  } else {
    progress_receive(comm);
  }
}

static int broken(const Comm *comm) {
  if (fail_after >= 0 && comm->base.done_tests >= fail_after) {
    return fault("TESTNET_FAIL_CODE", FAIL_CODE);
  }
  return comm->failed;
}

static int do_send(Comm *comm, void *data, uint64_t size, int tag, void *memory, void **to) {
  if (fault("TESTNET_STUCK_MS", STUCK_MS) > 0) {
    usleep(1000 * (useconds_t)fault("TESTNET_STUCK_MS", STUCK_MS));
  }
  *to = NULL;
  if (broken(comm) != 0) {
    return broken(comm);
  }
  if (!within(memory, data, size)) {
    return INTERNAL;
  }
  if (comm->base.nulls > 0) {
    comm->base.nulls--;
    return OK;
  }
  Request *request = new_request(comm);
  if (request == NULL) {
    return INTERNAL;
  }
  request->n = 1;
  request->data[0] = data;
  request->sizes[0] = size;
  request->tags[0] = tag;
  if (is_of_gpu(memory)) {
    request->device = data;
    request->data[0] = request->bounce = malloc(size + 1);
    int result = cuda_copy("cuMemcpyDtoH_v2", request->bounce, data, size);
    if (result != OK) {
      return result;
    }
  }
  enqueue(comm, request);
  progress(comm);
  *to = request;
  return OK;
}

static int do_receive(Comm *comm, int n, void **data, Size *sizes, int *tags, void **memories,
                      void **to) {
  *to = NULL;
  if (broken(comm) != 0) {
    return broken(comm);
  }
  if (n < 1 || n > fault("TESTNET_GROUP", GROUP)) {
    return INTERNAL;
  }
  for (int i = 0; i < n; i++) {
    if (!within(memories[i], data[i], (uint64_t)sizes[i])) {
      return INTERNAL;
    }
  }
  if (comm->base.nulls > 0) {
    comm->base.nulls--;
    return OK;
  }
  Request *request = new_request(comm);
  if (request == NULL) {
    return INTERNAL;
  }
  request->n = n;
  for (int i = 0; i < n; i++) {
    request->data[i] = data[i];
    request->sizes[i] = (uint64_t)sizes[i];
    request->tags[i] = tags[i];
  }
  if (is_of_gpu(memories[0])) {
    request->device = data[0];
    request->data[0] = request->bounce = malloc((size_t)sizes[0] + 1);
  }
  enqueue(comm, request);
  progress(comm);
  *to = request;
  return OK;
}

static int iflush(void *recv_comm, int n, void **data, int *sizes, void **memories, void **to) {
  Comm *comm = recv_comm;
  *to = NULL;
  for (int i = 0; i < n; i++) {
    if (!within(memories[i], data[i], (uint64_t)sizes[i])) {
      return INTERNAL;
    }
  }
  for (int i = 0; i < MAX_REQUESTS; i++) {
    Request *received = &comm->unflushed[i];
    if (received->device != NULL && received->device == data[0]) {
      int result =
          cuda_copy("cuMemcpyHtoD_v2", received->device, received->bounce, received->sizes[0]);
      free(received->bounce);
      received->device = NULL;
      if (result != OK) {
        return result;
      }
    }
  }
  Request *request = new_request(comm);
  if (request == NULL) {
    return INTERNAL;
  }
  request->flush_polls = 2;
  *to = request;
  return OK;
}

static int done_for_gpu(Comm *comm, Request *request) {
  if (comm->sending) {
    free(request->bounce);
    return OK;
  }
  for (int i = 0; i < MAX_REQUESTS; i++) {
    if (comm->unflushed[i].device == NULL) {
      comm->unflushed[i] = *request;
      return OK;
    }
  }
  return INTERNAL; /* too many unflushed receives */
}

static int test(void *tested, int *done, int *sizes) {
  Request *request = tested;
  Comm *comm = request->comm;
  *done = 0;
  if (broken(comm) != 0 && !request->finished) {
    return broken(comm);
  }
  if (request->flush_polls > 0) {
    request->finished = --request->flush_polls == 0;
  } else if (!request->finished) {
    progress(comm);
  }
  if (comm->failed != 0 && !request->finished) {
    return comm->failed;
  }
  if (request->finished) {
    *done = 1;
    comm->base.done_tests++;
    for (int i = 0; sizes != NULL && i < request->n && !fault("TESTNET_NO_SIZES", NO_SIZES); i++) {
      sizes[i] = (int)request->sizes[i];
    }
    request->used = 0;
    return request->bounce == NULL ? OK : done_for_gpu(comm, request);
  }
  return OK;
}

static void take_time_to_close(void) {
  if (fault("TESTNET_CLOSE_MS", CLOSE_MS) > 0) {
    usleep(1000 * (useconds_t)fault("TESTNET_CLOSE_MS", CLOSE_MS));
  }
}

static int close_comm(void *closed) {
  Comm *comm = closed;
  take_time_to_close();
  close(comm->base.socket);
  free(comm);
  return OK;
}

static int close_listen(void *closed) {
  Listener *listener = closed;
  take_time_to_close();
  close(listener->socket);
  free(listener);
  return OK;
}

/* The functions of the tables. */

#if NET_VERSION >= 11
static int contexts;

static int init(void **context, uint64_t job, void *config, Logger given, void *profiler) {
  if (job == 0 || config == NULL || *(int *)config != -1 || profiler == NULL) {
    return INTERNAL;
  }
  contexts++;
  *context = &contexts;
  return start(given);
}
static int finalize(void *context) { return context == &contexts && contexts-- > 0 ? OK : INTERNAL; }
static int net_listen(void *context, int device, void *handle, void **comm) {
  return context == &contexts ? do_listen(device, handle, comm) : INTERNAL;
}
static int net_connect(void *context, int device, void *handle, void **comm, void **device_comm) {
  (void)device;
  return context == &contexts && *device_comm == NULL ? do_connect(handle, comm) : INTERNAL;
}
#else
static int net_listen(int device, void *handle, void **comm) {
  return do_listen(device, handle, comm);
}
#if NET_VERSION == 10
static int init(Logger given, void *profiler) { return profiler ? start(given) : INTERNAL; }
static int net_connect(int device, void *config, void *handle, void **comm, void **device_comm) {
  (void)device;
  return *(int *)config == -1 && *device_comm == NULL ? do_connect(handle, comm) : INTERNAL;
}
#else
static int init(Logger given) { return start(given); }
#if NET_VERSION >= 7
static int net_connect(int device, void *handle, void **comm, void **device_comm) {
  (void)device;
  return *device_comm == NULL ? do_connect(handle, comm) : INTERNAL;
}
#else
static int net_connect(int device, void *handle, void **comm) {
  (void)device;
  return do_connect(handle, comm);
}
#endif
#endif
#endif

#if NET_VERSION >= 7
static int net_accept(void *listener, void **comm, void **device_comm) {
  return *device_comm == NULL ? do_accept(listener, comm) : INTERNAL;
}
#else
static int net_accept(void *listener, void **comm) { return do_accept(listener, comm); }
#endif

#if NET_VERSION >= 10
static int isend(void *comm, void *data, Size size, int tag, void *memory, void *profile,
                 void **request) {
  return profile == NULL ? do_send(comm, data, size, tag, memory, request) : INTERNAL;
}
static int irecv(void *comm, int n, void **data, Size *sizes, int *tags, void **memories,
                 void **profiles, void **request) {
  return profiles[0] == NULL ? do_receive(comm, n, data, sizes, tags, memories, request)
                             : INTERNAL;
}
#else
static int isend(void *comm, void *data, Size size, int tag, void *memory, void **request) {
  return do_send(comm, data, (uint64_t)size, tag, memory, request);
}
static int irecv(void *comm, int n, void **data, Size *sizes, int *tags, void **memories,
                 void **request) {
  return do_receive(comm, n, data, sizes, tags, memories, request);
}
#endif

enum { FUNCTIONS = NET_VERSION >= 11 ? 21 : NET_VERSION >= 9 ? 19 : NET_VERSION >= 7 ? 18 : 16 };

typedef struct {
  const char *name;
  void *functions[FUNCTIONS];
} Table;

#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclNetPlugin_v, version)

__attribute__((visibility("default"))) Table SYMBOL(NET_VERSION) = {
    "testnet",
    {init,    devices, get_properties, net_listen, net_connect, net_accept, reg_mr,
     reg_mr_dma_buf, dereg_mr, isend, irecv, iflush, test, close_comm, close_comm, close_listen,
#if NET_VERSION >= 11
     NULL, NULL, NULL, finalize, NULL
#endif
    }};
