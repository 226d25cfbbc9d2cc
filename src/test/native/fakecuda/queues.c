// SPDX-License-Identifier: Apache-2.0
// Hardware queues, which the streams of a context share.
#include "fake.h"

#include <sched.h>

static pthread_mutex_t places = PTHREAD_MUTEX_INITIALIZER;  // guards the last operation of each queue

// A stream without work gets an empty queue, if there is one. As with the real driver, two threads that call this at
// once may get the same queue; sched_yield makes that likely.
static struct queue *pick(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  struct queue *queue = stream->queue;
  bool keeps = queue && stream->done < stream->enqueued;
  pthread_mutex_unlock(&stream->lock);
  if (keeps || (queue && __atomic_load_n(&queue->unfinished, __ATOMIC_ACQUIRE) == 0)) return queue;
  struct queue *all = stream->context->queues[stream->priority < 0 ? PREFERRED : ORDINARY];
  queue = &all[0];
  for (int i = 0; i < QUEUES; i++) {
    int unfinished = __atomic_load_n(&all[i].unfinished, __ATOMIC_ACQUIRE);
    if (unfinished < __atomic_load_n(&queue->unfinished, __ATOMIC_ACQUIRE)) queue = &all[i];
    if (unfinished == 0) break;
  }
  sched_yield();
  return queue;
}

static struct stream *use(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  stream->users++;
  pthread_mutex_unlock(&stream->lock);
  return stream;
}

// Appends the operation to the queue, after operations of any stream. Called with the lock.
static void stand(struct op *op, struct stream *stream, struct queue *queue, uint64_t ticket) {
  op->queue = queue;
  if (queue->last && queue->last != stream) {
    op->ahead = use(queue->last);
    op->ahead_ticket = queue->last_ticket;
  }
  if (queue->last != stream) {
    if (queue->last) fake_stream_drop(queue->last);
    queue->last = use(stream);
  }
  queue->last_ticket = ticket;
  __atomic_add_fetch(&queue->unfinished, 1, __ATOMIC_ACQ_REL);
}

// A queue's operations begin in order: one that waits for earlier work of its stream blocks those of other streams. A
// kernel that has begun blocks none.
static void await_queue(struct op *op, struct context *context) {
  while (op->ahead && __atomic_load_n(&op->ahead->started, __ATOMIC_ACQUIRE) < op->ahead_ticket && !fake_broken(context)) {
    fake_pause();
  }
  if (op->ahead) fake_stream_drop(op->ahead);
}

static bool waits(const struct op *op) {
  return op->kind == OP_WAIT_EVENT || op->kind == OP_WAIT32 || op->kind == OP_WAIT64;
}

void fake_queue_lock(struct op *op, struct stream *stream) {
  struct queue *queue = pick(stream);
  pthread_mutex_lock(&places);
  stand(op, stream, queue, stream->enqueued + 1);
}

void fake_queue_unlock(void) { pthread_mutex_unlock(&places); }

void fake_queue_enter(struct op *op, struct stream *stream) {
  await_queue(op, stream->context);
  if (!waits(op)) __atomic_add_fetch(&stream->started, 1, __ATOMIC_ACQ_REL);
}

// The queue then has one less when the stream has, too.
struct queue *fake_queue_leave(struct op *op, struct stream *stream) {
  if (waits(op)) __atomic_add_fetch(&stream->started, 1, __ATOMIC_ACQ_REL);
  return op->queue;
}
