// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs. A captured stream is a lane of the graph: what it was given, in order, and the points of
// other lanes that it waits for between. A launch runs each lane on a thread of its own, so that lanes that wait for
// each other's kernels get on.
#include "fake.h"

#include "emulation.h"

#define EXEC_BYTES 4096                  // of the GPU's memory, so that one that is never destroyed is seen

struct lane {
  struct context *context;
  struct stream *stream;                 // NULL once the capture is over
  struct op *first, *last;
  uint64_t count;
  uint64_t seen[MAX_LANES];              // how far the other lanes are before what comes next
};

struct graph {
  uint64_t id;                           // of its capture
  struct stream *origin;
  pthread_t thread;
  int mode;
  bool invalid;
  struct lane lanes[MAX_LANES];
  int lane_count;
  int users;                             // its handle, those instantiated
  struct graph *next;                    // among those being captured
};

struct graph_exec {
  struct graph *graph;
  struct context *context;
  uint64_t launched, finished;
  int pending;                           // operations that hold it
};

// Guards everything here but what a running launch has for itself; taken before a stream's lock.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph *capturing;
static uint64_t ids;
static __thread int thread_mode;

static void drop(struct graph *graph) {
  if (--graph->users > 0) return;
  for (int i = 0; i < graph->lane_count; i++) {
    for (struct op *next, *op = graph->lanes[i].first; op; op = next) {
      next = op->next;
      fake_op_free(op);
    }
  }
  free(graph);
}

static struct lane *lane_of(const struct stream *stream, struct graph **graph) {
  for (struct graph *at = capturing; at; at = at->next) {
    for (int i = 0; i < at->lane_count; i++) {
      if (at->lanes[i].stream == stream) {
        *graph = at;
        return &at->lanes[i];
      }
    }
  }
  return NULL;
}

static void append(struct graph *graph, struct lane *lane, const struct op *op) {
  struct op *added = malloc(sizeof *added);
  *added = *op;
  added->next = NULL;
  if (lane->last) lane->last->next = added;
  else lane->first = added;
  lane->last = added;
  lane->seen[lane - graph->lanes] = ++lane->count;
}

bool fake_capture_op(struct stream *stream, const struct op *op, CUresult *result) {
  struct graph *graph;
  pthread_mutex_lock(&lock);
  struct lane *lane = capturing ? lane_of(stream, &graph) : NULL;
  *result = CUDA_SUCCESS;
  if (lane && op->staged) {
    graph->invalid = true;
    *result = fake_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a copy from pageable memory is captured");
  } else if (lane && graph->invalid) {
    *result = fake_fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier call invalidated the capture");
  } else if (lane) {
    append(graph, lane, op);
  }
  pthread_mutex_unlock(&lock);
  return lane != NULL;
}

CUresult fake_capture_forbids(struct stream *stream, const char *call) {
  struct graph *graph;
  pthread_mutex_lock(&lock);
  struct lane *lane = capturing ? lane_of(stream, &graph) : NULL;
  if (lane) graph->invalid = true;
  pthread_mutex_unlock(&lock);
  return lane ? fake_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s on a stream that is captured", call) : CUDA_SUCCESS;
}

CUresult fake_capture_unsafe(const char *call) {
  bool unsafe = false;
  pthread_mutex_lock(&lock);
  for (struct graph *at = capturing; at && thread_mode != 2; at = at->next) {
    bool mine = pthread_equal(at->thread, pthread_self());
    if (mine ? at->mode != 2 : at->mode == 0 && thread_mode == 0) {
      at->invalid = unsafe = true;
    }
  }
  pthread_mutex_unlock(&lock);
  return unsafe ? fake_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s during a capture", call) : CUDA_SUCCESS;
}

void fake_capture_stream_gone(struct stream *stream) {
  struct graph *graph;
  pthread_mutex_lock(&lock);
  struct lane *lane = capturing ? lane_of(stream, &graph) : NULL;
  if (lane) {
    graph->invalid = true;
    lane->stream = NULL;
  }
  pthread_mutex_unlock(&lock);
}

bool fake_capture_record(struct stream *stream, struct captured *point) {
  struct graph *graph;
  pthread_mutex_lock(&lock);
  struct lane *lane = capturing ? lane_of(stream, &graph) : NULL;
  point->id = lane ? graph->id : 0;
  if (lane) {
    point->lane = (int)(lane - graph->lanes);
    memcpy(point->seen, lane->seen, sizeof point->seen);
  }
  pthread_mutex_unlock(&lock);
  return lane != NULL;
}

static struct graph *capture_of(uint64_t id) {
  struct graph *at = capturing;
  while (at && at->id != id) at = at->next;
  return at;
}

static CUresult wait_for(struct stream *stream, const struct captured *point) {
  struct graph *own = NULL, *graph = capture_of(point->id);
  struct lane *lane = lane_of(stream, &own);
  if (!point->id) {
    own->invalid = true;
    return fake_fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a captured stream waits for an event from outside");
  }
  if (!graph) return fake_fail(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture that is over");
  if (own && own != graph) {
    own->invalid = graph->invalid = true;
    return fake_fail(CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures wait for each other");
  }
  if (graph->invalid) return fake_fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier call invalidated the capture");
  if (!lane) {
    if (graph->lane_count == MAX_LANES) return fake_fail(CUDA_ERROR_OUT_OF_MEMORY, "more than %d streams captured", MAX_LANES);
    lane = &graph->lanes[graph->lane_count++];
    *lane = (struct lane){.context = stream->context, .stream = stream};
  }
  append(graph, lane, &(struct op){.kind = OP_WAIT_LANE, .target = (uint64_t)point->lane, .value = point->seen[point->lane]});
  for (int i = 0; i < MAX_LANES; i++) {
    if (lane->seen[i] < point->seen[i]) lane->seen[i] = point->seen[i];
  }
  return CUDA_SUCCESS;
}

bool fake_capture_wait(struct stream *stream, const struct captured *point, CUresult *result) {
  struct graph *graph;
  pthread_mutex_lock(&lock);
  bool concerns = point->id || (capturing && lane_of(stream, &graph));
  if (concerns) *result = wait_for(stream, point);
  pthread_mutex_unlock(&lock);
  return concerns;
}

#define CURRENT                             \
  struct context *context;                  \
  CUresult result = fake_current(&context); \
  if (result) return result

#define OWN_STREAM                                                                                                 \
  CURRENT;                                                                                                         \
  struct stream *stream;                                                                                           \
  result = fake_stream_resolve(handle, &stream, context);                                                          \
  if (result) return result;                                                                                       \
  if (stream->context != context) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%s on another context's stream", __func__)

API CUresult cuStreamBeginCapture_v2(void *handle, int mode) {
  OWN_STREAM;
  struct graph *graph;
  if (mode < 0 || mode > 2) return fake_fail(CUDA_ERROR_INVALID_VALUE, "capture mode %d", mode);
  if (!handle || handle == (void *)1) return fake_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy stream can't be captured");
  pthread_mutex_lock(&lock);
  if (lane_of(stream, &graph)) {
    result = fake_fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is captured already");
  } else {
    graph = calloc(1, sizeof *graph);
    *graph = (struct graph){.id = ++ids, .origin = stream, .thread = pthread_self(), .mode = mode, .lane_count = 1,
                            .users = 1, .next = capturing};
    graph->lanes[0] = (struct lane){.context = context, .stream = stream};
    capturing = graph;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult end(struct graph *graph, struct stream *stream) {
  if (graph->origin != stream) {
    graph->invalid = true;
    return fake_fail(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was begun on another stream");
  }
  if (graph->mode != 2 && !pthread_equal(graph->thread, pthread_self())) {
    return fake_fail(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture was begun by another thread");
  }
  struct graph **at = &capturing;
  while (*at != graph) at = &(*at)->next;
  *at = graph->next;
  if (graph->invalid) return fake_fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier call invalidated the capture");
  for (int i = 0; i < graph->lane_count; i++) {
    graph->lanes[i].stream = NULL;
    if (graph->lanes[0].seen[i] < graph->lanes[i].count) {
      return fake_fail(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "captured stream %d was not waited for", i);
    }
  }
  return CUDA_SUCCESS;
}

API CUresult cuStreamEndCapture(void *handle, struct graph **ended) {
  OWN_STREAM;
  struct graph *graph;
  *ended = NULL;
  pthread_mutex_lock(&lock);
  if (!lane_of(stream, &graph)) {
    result = fake_fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not captured");
  } else {
    result = end(graph, stream);
    if (!result) *ended = graph;
    else if (!capture_of(graph->id)) drop(graph);
  }
  pthread_mutex_unlock(&lock);
  if (!result) fake_handle_add(graph, HANDLE_GRAPH);
  return result;
}

// 0 none, 1 active, 2 invalidated.
API CUresult cuStreamIsCapturing(void *handle, int *status) {
  OWN_STREAM;
  struct graph *graph;
  pthread_mutex_lock(&lock);
  *status = lane_of(stream, &graph) ? graph->invalid ? 2 : 1 : 0;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  if (*mode < 0 || *mode > 2) return CUDA_ERROR_INVALID_VALUE;
  int before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(struct graph *graph) {
  if (!fake_handle_remove(graph, HANDLE_GRAPH)) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no graph", (void *)graph);
  pthread_mutex_lock(&lock);
  drop(graph);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

API CUresult cuGraphInstantiateWithFlags(struct graph_exec **exec, struct graph *graph, unsigned long long flags) {
  CURRENT;
  if (!fake_handle_is(graph, HANDLE_GRAPH)) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no graph", (void *)graph);
  if (flags > 15) return fake_fail(CUDA_ERROR_INVALID_VALUE, "graph flags=%llu", flags);
  *exec = calloc(1, sizeof **exec);
  pthread_mutex_lock(&lock);
  graph->users++;
  pthread_mutex_unlock(&lock);
  **exec = (struct graph_exec){.graph = graph, .context = graph->lanes[0].context};
  pthread_mutex_lock(&fake_lock);
  *fake_used((*exec)->context->physical) += EXEC_BYTES;
  pthread_mutex_unlock(&fake_lock);
  fake_handle_add(*exec, HANDLE_GRAPH_EXEC);
  return CUDA_SUCCESS;
}

#define EXEC                                                                                                 \
  if (!fake_handle_is(exec, HANDLE_GRAPH_EXEC))                                                              \
    return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no instantiated graph, or was destroyed", (void *)exec)

// A real driver may defer the destruction; here, destroying an incomplete graph is an error.
API CUresult cuGraphExecDestroy(struct graph_exec *exec) {
  EXEC;
  pthread_mutex_lock(&lock);
  bool busy = exec->pending > 0;
  pthread_mutex_unlock(&lock);
  if (busy) return fake_fail(CUDA_ERROR_ILLEGAL_STATE, "a graph is destroyed while it is enqueued");
  fake_handle_remove(exec, HANDLE_GRAPH_EXEC);
  pthread_mutex_lock(&lock);
  drop(exec->graph);
  pthread_mutex_unlock(&lock);
  pthread_mutex_lock(&fake_lock);
  *fake_used(exec->context->physical) -= EXEC_BYTES;
  pthread_mutex_unlock(&fake_lock);
  free(exec);
  return CUDA_SUCCESS;
}

static CUresult enqueue(struct graph_exec *exec, void *handle, bool upload, const char *call) {
  OWN_STREAM;
  EXEC;
  if (exec->context != context) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%s: the graph is of another GPU", call);
  result = fake_capture_forbids(stream, call);
  if (result) return result;
  pthread_mutex_lock(&lock);
  exec->pending++;
  uint64_t number = upload ? 0 : ++exec->launched;
  pthread_mutex_unlock(&lock);
  return fake_enqueue(stream, &(struct op){.kind = OP_GRAPH, .exec = exec, .value = number}, NULL);
}

API CUresult cuGraphUpload(struct graph_exec *exec, void *handle) { return enqueue(exec, handle, true, __func__); }
API CUresult cuGraphLaunch(struct graph_exec *exec, void *handle) { return enqueue(exec, handle, false, __func__); }

struct launched {
  struct graph *graph;
  struct context *context;
  uint64_t done[MAX_LANES];
};

struct launched_lane {
  struct launched *launched;
  int number;
};

static void *run_lane(void *argument) {
  struct launched_lane *mine = argument;
  struct launched *launched = mine->launched;
  struct lane *lane = &launched->graph->lanes[mine->number];
  for (struct op *op = lane->first; op; op = op->next) {
    if (op->kind == OP_WAIT_LANE) {
      while (__atomic_load_n(&launched->done[op->target], __ATOMIC_ACQUIRE) < op->value && !fake_broken(launched->context)) {
        fake_pause();
      }
      emulation_catch_up();
    } else {
      fake_run(lane->context, op);
    }
    __atomic_add_fetch(&launched->done[mine->number], 1, __ATOMIC_RELEASE);
  }
  return NULL;
}

static bool is_turn(struct graph_exec *exec, uint64_t number) {
  pthread_mutex_lock(&lock);
  bool turn = exec->finished == number - 1;
  pthread_mutex_unlock(&lock);
  return turn;
}

// Launches of one instantiated graph follow each other, on whatever streams.
CUresult fake_graph_run(const struct op *op, struct context *context) {
  if (!op->value) return CUDA_SUCCESS;  // an upload
  while (!is_turn(op->exec, op->value) && !fake_broken(context)) fake_pause();
  emulation_catch_up();
  struct launched launched = {.graph = op->exec->graph, .context = context};
  struct launched_lane lanes[MAX_LANES];
  pthread_t threads[MAX_LANES];
  int failed = 0, started = 1;
  for (; started < launched.graph->lane_count && !failed; started++) {
    lanes[started] = (struct launched_lane){&launched, started};
    failed = pthread_create(&threads[started], NULL, run_lane, &lanes[started]);
  }
  if (!failed) {
    lanes[0] = (struct launched_lane){&launched, 0};
    run_lane(&lanes[0]);
  } else {
    started--;
    __atomic_store_n(&context->sticky, CUDA_ERROR_LAUNCH_FAILED, __ATOMIC_RELEASE);  // lets the others end
  }
  while (--started > 0) pthread_join(threads[started], NULL);
  pthread_mutex_lock(&lock);
  op->exec->finished = op->value;
  pthread_mutex_unlock(&lock);
  return failed ? fake_fail(CUDA_ERROR_LAUNCH_FAILED, "no thread for a graph: %s", strerror(failed)) : CUDA_SUCCESS;
}

void fake_graph_done(struct graph_exec *exec) {
  pthread_mutex_lock(&lock);
  exec->pending--;
  pthread_mutex_unlock(&lock);
}
