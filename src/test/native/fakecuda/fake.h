// SPDX-License-Identifier: Apache-2.0
// A CUDA driver over host memory, for tests on machines without a GPU: the driver functions that this
// library calls, with real asynchronous streams and strict checks of their arguments. See README.md.
#ifndef FAKE_H
#define FAKE_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_MAP_FAILED = 205,
  CUDA_ERROR_ALREADY_MAPPED = 208,
  CUDA_ERROR_NOT_MAPPED = 211,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

#define API __attribute__((visibility("default")))
#define MAX_DEVICES 16
#define MAX_LANES 32                     // streams in one capture
#define PAGE 4096ull
#define GRANULARITY (2ull << 20)

// GPUs are numbered twice: as the machine has them ("physical"), and as this process sees them.
// One of those that a GPU takes the work of a context's streams from, in order.
struct queue {
  int unfinished;                       // operations that are in it and not done; atomic
  struct stream *last;                  // whose operation was put into it last, or NULL
  uint64_t last_ticket;
};

enum { ORDINARY, PREFERRED, CLASSES, QUEUES = 8 };

struct context {
  int physical;
  int retained;
  bool dead;
  int sticky;                           // a CUresult that every later call answers; read without a lock
  bool peers[MAX_DEVICES];              // physical numbers of the GPUs whose memory it may reach
  struct stream *null_stream;
  int freeing;                          // calls that wait for its streams, and block enqueues; atomic
  size_t stack;                         // bytes of a thread; atomic, 0 before a call sets another size
  struct queue queues[CLASSES][QUEUES]; // but for the counts under the lock of queues.c
};

enum range_kind { RANGE_DEVICE, RANGE_PINNED, RANGE_REGISTERED, RANGE_IPC, RANGE_VMM, RANGE_POOL };

// Memory that the driver knows. A GPU's address is reserved but not readable by the host: an access outside a kernel
// crashes, as with a real GPU. `shadow` points to the bytes. If kernels are emulated, the bytes are at the address,
// too.
struct range {
  uint64_t start, size;
  unsigned char *shadow;
  enum range_kind kind;
  int physical;                         // -1 for memory of the host
  struct context *context;
  int fd;
  uint64_t id;                          // of an allocation, unique on the machine
  int opened;                           // times that cuIpcOpenMemHandle gave it out
  bool access[MAX_DEVICES];             // RANGE_VMM: what cuMemSetAccess allowed
  struct vmm *vmm;
  struct pool *pool;                    // RANGE_POOL
  bool managed;
  int users;                            // the table's own, and each operation that is touching it
};

struct event;
struct graph_exec;
struct function;

enum op_kind { OP_COPY, OP_SET8, OP_SET32, OP_WRITE32, OP_WRITE64, OP_WAIT32, OP_WAIT64, OP_RECORD, OP_WAIT_EVENT,
               OP_KERNEL, OP_HOST, OP_GRAPH, OP_WAIT_LANE };

struct op {
  enum op_kind kind;
  uint64_t target, source, size, value;
  unsigned flags;
  void *staged;                         // pageable source bytes, copied when the operation was enqueued
  struct event *event;
  uint64_t event_ticket;
  struct graph_exec *exec;
  struct launch *launch;
  void (*host)(void *);
  void *host_data;
  struct queue *queue;                  // which it stands in
  struct stream *ahead;                 // whose operation stands before it there, or NULL if it's the same stream's
  uint64_t ahead_ticket;
  struct op *next;
};

struct stream {
  struct context *context;
  unsigned flags;
  int priority;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct op *first, *last;
  uint64_t enqueued, done;
  enum op_kind last_kind;               // of the operation enqueued last
  uint64_t started;                     // operations that no longer block their queue; atomic
  struct queue *queue;                  // the last one, or NULL
  bool closed;
  int users;                            // its handle, its thread, its waiters
};

// A point in a capture, where an event was recorded.
struct captured {
  uint64_t id;                          // which capture, 0 for none
  int lane;
  uint64_t seen[MAX_LANES];             // how far each of the capture's streams was before it
};

// Code of a kernel name, which a launch runs on the stream's thread: a C function with parameters in words of 8 bytes,
// or a kernel compiled for the CPU.
struct kernel {
  const char *name;
  size_t parameter_count;
  uint32_t parameter_sizes[8];
  CUresult (*run)(struct context *context, const uint64_t *parameters);
  const struct emulated_kernel *emulated;
  int stack;                            // bytes of a thread
};

// A kernel and all that it was launched with.
struct launch {
  struct kernel kernel;                 // without a name: does nothing
  unsigned grid[3], block[3], shared;
  bool overlaps;                        // may begin before the one in front of it has ended
  unsigned char *parameters;
  struct knowledge *before;             // where races are looked for: what had ended when it was made
};

extern pthread_mutex_t fake_lock;       // guards everything but the queues of streams
extern bool fake_initialized;

CUresult fake_fail(CUresult code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// device.c
int fake_device_count(void);
int fake_physical(CUdevice device);     // -1 if there is no such device
int fake_ordinal(int physical);         // -1 if this process doesn't see it
bool fake_peers_allowed(void);
uint64_t fake_memory_size(void);
CUresult fake_current(struct context **context);
struct context *fake_context_of(int physical);

// handles.c: nothing that isn't listed here is followed as a pointer.
enum handle_kind { HANDLE_STREAM = 1, HANDLE_EVENT, HANDLE_MODULE, HANDLE_FUNCTION, HANDLE_VMM, HANDLE_CONTEXT,
                   HANDLE_GRAPH, HANDLE_GRAPH_EXEC, HANDLE_POOL };
void fake_handle_add(void *handle, enum handle_kind kind);
bool fake_handle_is(const void *handle, enum handle_kind kind);
bool fake_handle_remove(void *handle, enum handle_kind kind);
void fake_handles_each(enum handle_kind kind, void (*visit)(void *handle, void *argument), void *argument);

// memory.c
struct range *fake_range_add(const struct range *template);
struct range *fake_range_at(uint64_t address);       // under fake_lock
struct range *fake_range_opened(struct context *context, uint64_t id);
void fake_range_remove(struct range *range);         // under fake_lock
void fake_range_drop(struct range *range);           // under fake_lock: a user less
bool fake_range_reachable(const struct range *range, const struct context *context);
void fake_ranges_of_context_gone(struct context *context);
CUresult fake_check_span(struct context *context, const char *what, uint64_t address, uint64_t size, bool host_too,
                         bool *pageable);
CUresult fake_move(struct context *context, uint64_t target, uint64_t source, uint64_t size);
CUresult fake_touch(struct context *context, uint64_t address, uint64_t size,
                    void (*visit)(unsigned char *bytes, uint64_t size, void *argument), void *argument);
int fake_memfd(int physical, uint64_t id, uint64_t size);
uint64_t fake_new_id(void);
int64_t *fake_used(int physical);
void *fake_reserve(uint64_t size, uint64_t alignment);
void fake_expose(uint64_t start, uint64_t size, int fd);  // where kernels are emulated they follow addresses
void fake_hide(uint64_t start, uint64_t size);

// pools.c
bool fake_pool_reachable(const struct pool *pool, const struct context *context);
void fake_pool_drop(struct pool *pool);              // under fake_lock: a piece of memory less

// stream.c
CUresult fake_stream_resolve(void *handle, struct stream **stream, struct context *context);
CUresult fake_enqueue(struct stream *stream, const struct op *op, uint64_t *ticket);
void fake_stream_drop(struct stream *stream);      // one user less; the last one frees it
void fake_queue_lock(struct op *op, struct stream *stream);  // gives it its place, until the unlock the last one
void fake_queue_unlock(void);
void fake_queue_enter(struct op *op, struct stream *stream);  // waits for its turn in the queue
struct queue *fake_queue_leave(struct op *op, struct stream *stream);
CUresult fake_stream_wait(struct stream *stream, uint64_t ticket);
void fake_streams_drain(struct context *context);
void fake_streams_stop(struct context *context);  // drains them, and blocks enqueues meanwhile
void fake_streams_wake(struct context *context);
void fake_pause(void);
bool fake_broken(const struct context *context);  // released, or an error has stopped it
void fake_run(struct context *context, struct op *op);  // as often as it is called
void fake_op_free(struct op *op);

// graph.c: each returns whether a capture is concerned; then it has done all work.
bool fake_capture_op(struct stream *stream, const struct op *op, CUresult *result);
bool fake_capture_record(struct stream *stream, struct captured *point);
bool fake_capture_wait(struct stream *stream, const struct captured *point, CUresult *result);
CUresult fake_capture_forbids(struct stream *stream, const char *call);  // and invalidates the capture
// What might disturb a capture: refused to a thread that captures, or while another captures in the global mode, unless
// the thread has opted out. Invalidates those captures.
CUresult fake_capture_unsafe(const char *call);
void fake_capture_stream_gone(struct stream *stream);
CUresult fake_graph_run(const struct op *op, struct context *context);
void fake_graph_done(struct graph_exec *exec);

// module.c: the caller that makes a launch frees it. It may run many times, on any stream's thread of that context.
// Returns the bytes of a thread's stack for which memory was reserved.
size_t fake_stack(struct context *context);
CUresult fake_launch_make(struct launch **launch, struct function *function, const unsigned *grid, const unsigned *block,
                          unsigned shared, void **params, void **extra);
CUresult fake_launch_run(const struct launch *launch, struct context *context);
void fake_launch_free(struct launch *launch);
#endif
