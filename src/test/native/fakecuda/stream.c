// SPDX-License-Identifier: Apache-2.0
// Streams, each with a thread of its own that does what it is given in order; events.
#include "fake.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "emulation.h"

#define MANY_BYTES (256 * 1024)
#define EVENT_BYTES 64                   // of the GPU's memory, so that one that is never destroyed is seen

struct event {
  struct context *context;
  uint64_t recorded, completed;         // under fake_lock
  struct captured captured;             // where a capture has it, if the last recording was in one
  struct timespec when;
};

void fake_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); }

bool fake_broken(const struct context *context) {
  return __atomic_load_n(&context->dead, __ATOMIC_ACQUIRE) || __atomic_load_n(&context->sticky, __ATOMIC_ACQUIRE);
}

void fake_stream_drop(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  bool last = --stream->users == 0;
  pthread_mutex_unlock(&stream->lock);
  if (last) {
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
  }
}

// Untouched pages of a file are zero and use no memory. So zeroing many pages frees them.
static bool zero_pages(unsigned char *bytes, uint64_t size) {
  uint64_t skip = -(uintptr_t)bytes % PAGE;
  if (size < skip + MANY_BYTES) return false;
  uint64_t whole = (size - skip) / PAGE * PAGE;
  if (madvise(bytes + skip, whole, MADV_REMOVE)) return false;
  memset(bytes, 0, skip);
  memset(bytes + skip + whole, 0, size - skip - whole);
  return true;
}

static void set8(unsigned char *bytes, uint64_t size, void *argument) {
  unsigned char value = *(unsigned char *)argument;
  if (value || !zero_pages(bytes, size)) memset(bytes, value, size);
}

static void set32(unsigned char *bytes, uint64_t size, void *argument) {
  for (uint64_t i = 0; i + 4 <= size; i += 4) memcpy(bytes + i, argument, 4);
}

static void store(unsigned char *bytes, uint64_t size, void *argument) {
  // A release store: an acquiring reader sees the earlier writes of the stream.
  if (size == 8) __atomic_store_n((uint64_t *)bytes, *(uint64_t *)argument, __ATOMIC_RELEASE);
  if (size == 4) __atomic_store_n((uint32_t *)bytes, *(uint32_t *)argument, __ATOMIC_RELEASE);
}

static void load(unsigned char *bytes, uint64_t size, void *argument) {
  *(uint64_t *)argument =
      size == 8 ? __atomic_load_n((uint64_t *)bytes, __ATOMIC_ACQUIRE) : __atomic_load_n((uint32_t *)bytes, __ATOMIC_ACQUIRE);
}

static bool satisfied(uint64_t found, uint64_t wanted, unsigned flags, bool wide) {
  switch (flags & 3) {
    case 0: return wide ? (int64_t)(found - wanted) >= 0 : (int32_t)(uint32_t)(found - wanted) >= 0;
    case 1: return found == wanted;
    case 2: return (found & wanted) != 0;
    default: return wide ? ~(found | wanted) != 0 : (uint32_t) ~(found | wanted) != 0;
  }
}

static CUresult copy(struct context *context, const struct op *op) {
  if (op->staged) {  // pageable source: its bytes were taken when it was enqueued
    struct range range = {.start = (uint64_t)op->staged, .size = op->size, .shadow = op->staged, .kind = RANGE_REGISTERED,
                          .physical = -1, .context = context, .fd = -1};
    pthread_mutex_lock(&fake_lock);
    struct range *added = fake_range_add(&range);
    pthread_mutex_unlock(&fake_lock);
    CUresult result = fake_move(context, op->target, range.start, op->size);
    pthread_mutex_lock(&fake_lock);
    fake_range_remove(added);
    pthread_mutex_unlock(&fake_lock);
    return result;
  }
  return fake_move(context, op->target, op->source, op->size);
}

static CUresult perform(struct context *context, struct op *op) {
  uint64_t value = op->value;
  bool wide = op->kind == OP_WRITE64 || op->kind == OP_WAIT64;
  switch (op->kind) {
    case OP_COPY: return copy(context, op);
    case OP_SET8: return fake_touch(context, op->target, op->size, set8, &value);
    case OP_SET32: return fake_touch(context, op->target, op->size, set32, &value);
    case OP_WRITE32:
    case OP_WRITE64: return fake_touch(context, op->target, wide ? 8 : 4, store, &value);
    case OP_WAIT32:
    case OP_WAIT64:
      while (!fake_broken(context)) {
        CUresult result = fake_touch(context, op->target, wide ? 8 : 4, load, &value);
        if (result || satisfied(value, op->value, op->flags, wide)) return result;
        fake_pause();
      }
      return CUDA_SUCCESS;
    case OP_RECORD:
      pthread_mutex_lock(&fake_lock);
      if (op->event->completed < op->event_ticket) op->event->completed = op->event_ticket;
      clock_gettime(CLOCK_MONOTONIC, &op->event->when);
      pthread_mutex_unlock(&fake_lock);
      return CUDA_SUCCESS;
    case OP_WAIT_EVENT:
      while (!fake_broken(context)) {
        pthread_mutex_lock(&fake_lock);
        bool reached = op->event->completed >= op->event_ticket;
        pthread_mutex_unlock(&fake_lock);
        if (reached) break;
        fake_pause();
      }
      return CUDA_SUCCESS;
    case OP_KERNEL: return fake_launch_run(op->launch, context);
    case OP_HOST: op->host(op->host_data); return CUDA_SUCCESS;
    case OP_GRAPH: return fake_graph_run(op, context);
    case OP_WAIT_LANE: return CUDA_SUCCESS;  // inside graphs only
  }
  return CUDA_SUCCESS;
}

// After an error nothing runs any more, and the first error stays.
void fake_run(struct context *context, struct op *op) {
  if (fake_broken(context)) return;
  CUresult result = perform(context, op);
  if (op->kind >= OP_WAIT32 && op->kind != OP_RECORD && op->kind != OP_KERNEL) emulation_catch_up();
  int none = 0;
  if (result) __atomic_compare_exchange_n(&context->sticky, &none, result, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void fake_op_free(struct op *op) {
  if (op->exec) fake_graph_done(op->exec);
  fake_launch_free(op->launch);
  free(op->staged);
  free(op);
}

static void *work(void *argument) {
  struct stream *stream = argument;
  pthread_mutex_lock(&stream->lock);
  for (;;) {
    while (!stream->first && !stream->closed) pthread_cond_wait(&stream->changed, &stream->lock);
    struct op *op = stream->first;
    if (!op) break;
    stream->first = op->next;
    if (!stream->first) stream->last = NULL;
    pthread_mutex_unlock(&stream->lock);
    fake_queue_enter(op, stream);
    fake_run(stream->context, op);
    struct queue *queue = fake_queue_leave(op, stream);
    fake_op_free(op);
    pthread_mutex_lock(&stream->lock);
    stream->done++;
    __atomic_sub_fetch(&queue->unfinished, 1, __ATOMIC_ACQ_REL);
    pthread_cond_broadcast(&stream->changed);
  }
  pthread_mutex_unlock(&stream->lock);
  fake_stream_drop(stream);
  return NULL;
}

static CUresult create(struct context *context, unsigned flags, int priority, struct stream **made) {
  struct stream *stream = calloc(1, sizeof *stream);
  *stream = (struct stream){.context = context, .flags = flags, .priority = priority, .users = 2};
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->changed, NULL);
  // Signals are the program's, not its driver's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  int failed = pthread_create(&thread, &attributes, work, stream);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) {
    free(stream);
    return fake_fail(CUDA_ERROR_OUT_OF_MEMORY, "no thread for a stream: %s", strerror(failed));
  }
  fake_handle_add(stream, HANDLE_STREAM);
  *made = stream;
  return CUDA_SUCCESS;
}

CUresult fake_stream_resolve(void *handle, struct stream **stream, struct context *context) {
  if (handle == NULL || handle == (void *)1) {
    pthread_mutex_lock(&fake_lock);
    CUresult result = context->null_stream ? CUDA_SUCCESS : create(context, 0, 0, &context->null_stream);
    *stream = context->null_stream;
    pthread_mutex_unlock(&fake_lock);
    return result;
  }
  *stream = handle;
  if (!fake_handle_is(handle, HANDLE_STREAM)) {
    return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no stream, or was destroyed", handle);
  }
  return CUDA_SUCCESS;
}

CUresult fake_enqueue(struct stream *stream, const struct op *op, uint64_t *ticket) {
  CUresult result;
  if (ticket) *ticket = 0;
  if (fake_capture_op(stream, op, &result)) {
    if (result) {
      fake_launch_free(op->launch);
      free(op->staged);
    }
    return result;
  }
  pthread_mutex_lock(&stream->lock);
  bool refused = op->launch && op->launch->overlaps && stream->last_kind != OP_KERNEL;
  if (!refused) stream->last_kind = op->kind;
  pthread_mutex_unlock(&stream->lock);
  if (refused) {
    // Stricter than a driver: the library promises to overlap kernels only.
    fake_launch_free(op->launch);
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "a kernel is to overlap work that is no kernel");
  }
  while (__atomic_load_n(&stream->context->freeing, __ATOMIC_ACQUIRE) && !fake_broken(stream->context)) fake_pause();
  struct op *added = malloc(sizeof *added);
  *added = *op;
  added->next = NULL;
  added->ahead = NULL;
  fake_queue_lock(added, stream);
  pthread_mutex_lock(&stream->lock);
  stream->queue = added->queue;
  if (stream->last) stream->last->next = added;
  else stream->first = added;
  stream->last = added;
  uint64_t mine = ++stream->enqueued;
  if (ticket) *ticket = mine;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  fake_queue_unlock();
  return CUDA_SUCCESS;
}

CUresult fake_stream_wait(struct stream *stream, uint64_t ticket) {
  pthread_mutex_lock(&stream->lock);
  stream->users++;
  while (stream->done < ticket) pthread_cond_wait(&stream->changed, &stream->lock);
  struct context *context = stream->context;
  pthread_mutex_unlock(&stream->lock);
  fake_stream_drop(stream);
  return __atomic_load_n(&context->sticky, __ATOMIC_ACQUIRE);
}

struct drained {
  struct context *context;
  struct stream *streams[1024];
  uint64_t tickets[1024];
  int count;
};

static void note(void *handle, void *argument) {
  struct stream *stream = handle;
  struct drained *all = argument;
  pthread_mutex_lock(&stream->lock);
  if (stream->context == all->context && stream->done < stream->enqueued && all->count < 1024) {
    stream->users++;
    all->tickets[all->count] = stream->enqueued;
    all->streams[all->count++] = stream;
  }
  pthread_mutex_unlock(&stream->lock);
}

void fake_streams_drain(struct context *context) {
  struct drained *all = calloc(1, sizeof *all);
  all->context = context;
  fake_handles_each(HANDLE_STREAM, note, all);
  for (int i = 0; i < all->count; i++) {
    fake_stream_wait(all->streams[i], all->tickets[i]);
    fake_stream_drop(all->streams[i]);
  }
  free(all);
}

void fake_streams_stop(struct context *context) {
  __atomic_add_fetch(&context->freeing, 1, __ATOMIC_ACQ_REL);
  fake_streams_drain(context);
  __atomic_sub_fetch(&context->freeing, 1, __ATOMIC_ACQ_REL);
}

static void wake(void *handle, void *argument) {
  struct stream *stream = handle;
  pthread_mutex_lock(&stream->lock);
  if (stream->context == argument) pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
}

void fake_streams_wake(struct context *context) { fake_handles_each(HANDLE_STREAM, wake, context); }

#define CURRENT                             \
  struct context *context;                  \
  CUresult result = fake_current(&context); \
  if (result) return result

#define STREAM                                             \
  CURRENT;                                                 \
  struct stream *stream;                                   \
  result = fake_stream_resolve(handle, &stream, context);  \
  if (result) return result

// A stream works in the context that it was made in; for most calls another may be current, but none at all
// or another GPU's is our mistake.
#define OWN_STREAM                                                                                       \
  STREAM;                                                                                                \
  if (stream->context != context)                                                                        \
    return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%s: the stream is of GPU %d, the current context of GPU %d", __func__, \
                     stream->context->physical, context->physical)

API CUresult cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority) {
  CURRENT;
  if (flags > 1) return fake_fail(CUDA_ERROR_INVALID_VALUE, "stream flags=%u", flags);
  return create(context, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority, stream);
}

API CUresult cuStreamCreate(struct stream **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

// Returns at once; what was enqueued is still done.
API CUresult cuStreamDestroy_v2(void *handle) {
  if (!fake_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!handle || !fake_handle_remove(handle, HANDLE_STREAM)) {
    return fake_fail(CUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy(%p): no stream, or destroyed already", handle);
  }
  struct stream *stream = handle;
  fake_capture_stream_gone(stream);
  pthread_mutex_lock(&stream->lock);
  stream->closed = true;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  fake_stream_drop(stream);
  return CUDA_SUCCESS;
}

API CUresult cuStreamQuery(void *handle) {
  OWN_STREAM;
  result = fake_capture_unsafe(__func__);
  if (result) return result;
  result = fake_capture_forbids(stream, __func__);
  if (result) return result;
  pthread_mutex_lock(&stream->lock);
  bool busy = stream->done < stream->enqueued;
  pthread_mutex_unlock(&stream->lock);
  return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(void *handle) {
  OWN_STREAM;
  result = fake_capture_forbids(stream, __func__);
  if (result) return result;
  pthread_mutex_lock(&stream->lock);
  uint64_t ticket = stream->enqueued;
  pthread_mutex_unlock(&stream->lock);
  return fake_stream_wait(stream, ticket);
}

API CUresult cuStreamGetPriority(void *handle, int *priority) {
  STREAM;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetFlags(void *handle, unsigned *flags) {
  STREAM;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetCtx(void *handle, struct context **of) {
  STREAM;
  *of = stream->context;
  return CUDA_SUCCESS;
}

static CUresult word(void *handle, uint64_t address, uint64_t value, unsigned flags, enum op_kind kind, unsigned max_flags,
                     const char *call) {
  OWN_STREAM;
  unsigned size = kind == OP_WRITE64 || kind == OP_WAIT64 ? 8 : 4;
  if (address % size || flags > max_flags) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s(0x%llx, flags=%u)", call, (unsigned long long)address, flags);
  }
  result = fake_check_span(context, call, address, size, false, NULL);
  if (result) return result;
  return fake_enqueue(stream, &(struct op){.kind = kind, .target = address, .value = value, .flags = flags}, NULL);
}

API CUresult cuStreamWriteValue64_v2(void *handle, CUdeviceptr address, uint64_t value, unsigned flags) {
  return word(handle, address, value, flags, OP_WRITE64, 0, __func__);
}

API CUresult cuStreamWriteValue32_v2(void *handle, CUdeviceptr address, uint32_t value, unsigned flags) {
  return word(handle, address, value, flags, OP_WRITE32, 0, __func__);
}

API CUresult cuStreamWaitValue64_v2(void *handle, CUdeviceptr address, uint64_t value, unsigned flags) {
  return word(handle, address, value, flags, OP_WAIT64, 3, __func__);
}

API CUresult cuStreamWaitValue32_v2(void *handle, CUdeviceptr address, uint32_t value, unsigned flags) {
  return word(handle, address, value, flags, OP_WAIT32, 3, __func__);
}

API CUresult cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
  STREAM;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return fake_enqueue(stream, &(struct op){.kind = OP_HOST, .host = function, .host_data = data}, NULL);
}

API CUresult cuEventCreate(struct event **event, unsigned flags) {
  CURRENT;
  if (flags > 7) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  bool has_room = *fake_used(context->physical) + EVENT_BYTES <= (int64_t)fake_memory_size();
  if (has_room) *fake_used(context->physical) += EVENT_BYTES;
  pthread_mutex_unlock(&fake_lock);
  if (!has_room) return fake_fail(CUDA_ERROR_OUT_OF_MEMORY, "cuEventCreate");
  *event = calloc(1, sizeof **event);
  (*event)->context = context;
  fake_handle_add(*event, HANDLE_EVENT);
  return CUDA_SUCCESS;
}

// The event's memory is kept: an enqueued operation may still read it.
API CUresult cuEventDestroy_v2(struct event *event) {
  if (!fake_handle_remove(event, HANDLE_EVENT)) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no event", (void *)event);
  pthread_mutex_lock(&fake_lock);
  *fake_used(event->context->physical) -= EVENT_BYTES;
  pthread_mutex_unlock(&fake_lock);
  return CUDA_SUCCESS;
}

#define EVENT \
  if (!fake_handle_is(event, HANDLE_EVENT)) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no event", (void *)event)

API CUresult cuEventRecord(struct event *event, void *handle) {
  STREAM;
  EVENT;
  if (event->context != stream->context) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "event and stream are of two contexts");
  if (fake_capture_record(stream, &event->captured)) return CUDA_SUCCESS;
  pthread_mutex_lock(&fake_lock);
  uint64_t ticket = ++event->recorded;
  pthread_mutex_unlock(&fake_lock);
  return fake_enqueue(stream, &(struct op){.kind = OP_RECORD, .event = event, .event_ticket = ticket}, NULL);
}

static bool event_done(struct event *event) {
  pthread_mutex_lock(&fake_lock);
  bool done = event->completed >= event->recorded;
  pthread_mutex_unlock(&fake_lock);
  return done;
}

#define NOT_CAPTURED \
  if (event->captured.id) return fake_fail(CUDA_ERROR_CAPTURED_EVENT, "%s: the event was recorded in a capture", __func__)

API CUresult cuEventQuery(struct event *event) {
  CURRENT;
  result = fake_capture_unsafe(__func__);
  if (result) return result;
  EVENT;
  NOT_CAPTURED;
  return event_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuEventSynchronize(struct event *event) {
  CURRENT;
  EVENT;
  NOT_CAPTURED;
  while (!event_done(event) && !fake_broken(event->context)) fake_pause();
  return __atomic_load_n(&event->context->sticky, __ATOMIC_ACQUIRE);
}

API CUresult cuEventElapsedTime(float *milliseconds, struct event *from, struct event *event) {
  EVENT;
  if (!fake_handle_is(from, HANDLE_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
  if (!event_done(from) || !event_done(event)) return CUDA_ERROR_NOT_READY;
  *milliseconds = (float)((double)(event->when.tv_sec - from->when.tv_sec) * 1e3 +
                          (double)(event->when.tv_nsec - from->when.tv_nsec) / 1e6);
  return CUDA_SUCCESS;
}

API CUresult cuStreamWaitEvent(void *handle, struct event *event, unsigned flags) {
  STREAM;
  EVENT;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (fake_capture_wait(stream, &event->captured, &result)) return result;
  pthread_mutex_lock(&fake_lock);
  uint64_t ticket = event->recorded;
  pthread_mutex_unlock(&fake_lock);
  return fake_enqueue(stream, &(struct op){.kind = OP_WAIT_EVENT, .event = event, .event_ticket = ticket}, NULL);
}
