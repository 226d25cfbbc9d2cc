// SPDX-License-Identifier: Apache-2.0
// Fibers and how they take turns. See emulation.h.
#define _GNU_SOURCE
#include "emulation.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include "emulation_switch.h"
#include "races.h"

// A stack's length is an odd number of cache lines: what all threads use most must not share a set of the cache.
#define STACK (24 * 1024 + 5 * 64)
#define THREAD_SIZE 128
#define STACK_RESERVE 512
#define MAX_RESIDENT (64 * 1024)
#define POLLS 64
#define COURIER_STACK (64 * 1024)
#define BARRIERS 16
#define WARP 32

_Static_assert(sizeof(struct emulated_thread) <= THREAD_SIZE, "a thread must fit at the beginning of its stack");

// State of a thread; for a wait at a barrier, AT_BARRIER plus the barrier's number.
enum { ENDED, READY, AT_WARP, AT_BARRIER };

struct warp {
  uint32_t alive;
  struct {
    uint32_t mask, arrived;
  } meetings[WARP];
};

struct barrier {
  uint32_t arrived, passed, last_passed;
  struct race_meeting meeting, last_meeting;
};

struct bulk {
  struct emulated_thread *thread;
  uint32_t group, bytes;
  void *target;
  const void *source;
  uint64_t *barrier;
};

struct block {
  struct emulated_block shown;          // first: a thread's block is this
  struct run *run;
  unsigned char *stacks, *states;
  uint32_t alive, ready;
  struct warp warps[32];
  struct barrier barriers[BARRIERS];
  struct bulk *bulks;
  uint32_t bulk_count, bulk_capacity;
  struct race_thread *races;            // one for each thread, and one for bulk copies; null: races are not detected
};

// A delayed part of a line, if lines are torn.
struct torn {
  uint64_t *address;
  uint64_t words[2];
};

// One launch.
struct run {
  const struct emulated_kernel *kernel;
  const unsigned char *parameters;
  uint32_t threads;
  bool overlaps;                        // may begin before the launch in front of it has ended
  uint64_t next, total;                 // blocks
  uint32_t resident;
  struct block *blocks;
  void *scheduler;                      // its stack pointer
  unsigned char *courier;               // a stack for bulk copies
  const struct bulk *carried;
  bool progress;
  bool ended_early;
  enum emulation_end end;
  uint64_t random;                      // 0: all in order
  const unsigned char *stacks;
  size_t stacks_size;
  uint32_t slots;                       // the first of all threads'
  struct torn *torn;
  size_t torn_count, torn_capacity;
  struct knowledge *known, *result, *caused, *caused_result;
  int gpu;
  char *text;
  size_t text_size;
};

__thread struct emulated_thread *emulated_self __attribute__((tls_model("initial-exec")));

static const struct emulated_kernel *registered[4096];
static size_t registered_count;
static uint64_t seed;
static bool lines_torn;

void emulation_register(const struct emulated_kernel *kernel) {
  if (registered_count < sizeof registered / sizeof *registered) registered[registered_count++] = kernel;
}

bool emulation_is_on(void) {
  const char *value = getenv("FAKE_CUDA_EMULATE");
  return value && *value && strcmp(value, "0");
}

static void load(void) {
  const char *chosen = getenv("FAKE_CUDA_SEED");
  seed = chosen ? strtoull(chosen, NULL, 0) : 0;
  const char *torn = getenv("FAKE_CUDA_TORN_LINES");
  lines_torn = torn && *torn && strcmp(torn, "0");
  Dl_info here;
  if (!emulation_is_on() || !dladdr((void *)emulation_register, &here)) return;
  const char *slash = strrchr(here.dli_fname, '/');
  char path[4096];
  snprintf(path, sizeof path, "%.*s/libfluxccl_emulation%s.so", slash ? (int)(slash - here.dli_fname) : 1,
           slash ? here.dli_fname : ".", races_wanted() ? "_races" : "");
  if (!dlopen(path, RTLD_NOW | RTLD_LOCAL)) fprintf(stderr, "fake CUDA: no kernels to run: %s\n", dlerror());
}

const struct emulated_kernel *emulation_find(const char *name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  for (size_t i = 0; i < registered_count; i++) {
    if (!strcmp(registered[i]->name, name)) return registered[i];
  }
  return NULL;
}

static uint64_t next_random(struct run *run) {
  run->random ^= run->random << 13;
  run->random ^= run->random >> 7;
  return run->random ^= run->random << 17;
}

static struct emulated_thread *thread_of(const struct block *block, uint32_t number) {
  return (struct emulated_thread *)(block->stacks + (size_t)(number + 1) * STACK - THREAD_SIZE);
}

static struct block *block_of(const struct emulated_thread *thread) { return (struct block *)thread->block; }

static void to_scheduler(struct emulated_thread *thread) {
  emulation_switch(&thread->stack_pointer, block_of(thread)->run->scheduler);
}

static void set_state(struct block *block, uint32_t number, unsigned char state) {
  block->ready += (state == READY) - (block->states[number] == READY);
  block->states[number] = state;
}

static void end_early(struct run *run, enum emulation_end end, const char *what) {
  struct emulated_thread *thread = emulated_self;
  run->ended_early = true;
  run->end = end;
  if (thread) {
    snprintf(run->text, run->text_size, "%s: block %u,%u,%u thread %u,%u,%u %s", run->kernel->name,
             thread->block->index.x, thread->block->index.y, thread->block->index.z, thread->index.x, thread->index.y,
             thread->index.z, what);
  } else {
    snprintf(run->text, run->text_size, "%s: %s", run->kernel->name, what);
  }
}

static void fail(const char *what) {
  end_early(block_of(emulated_self)->run, EMULATION_FAILED, what);
  for (;;) to_scheduler(emulated_self);
}

void emulation_trap(void) {
  fail("trapped");
  abort();
}

void emulation_misaligned(void) {
  fail("accessed an address that is not aligned");
  abort();
}

void emulation_give_way(void) {
  emulated_self->polls = 0;
  to_scheduler(emulated_self);
}

static struct race_thread *racer(const struct emulated_thread *thread) {
  return &block_of(thread)->races[thread->number];
}

void emulation_await_launch_before(void) { emulated_self->awaited = true; }

// If lines are torn, their first halves arrive when the launch ends, or a release or a fence orders them.
static void deliver_torn(struct run *run) {
  for (size_t i = 0; i < run->torn_count; i++) {
    __atomic_store_n(run->torn[i].address, run->torn[i].words[0], __ATOMIC_RELEASE);
    __atomic_store_n(run->torn[i].address + 1, run->torn[i].words[1], __ATOMIC_RELEASE);
  }
  run->torn_count = 0;
}

void emulation_access(const void *address, uint32_t size, int access, int order, int scope) {
  struct emulated_thread *thread = emulated_self;
  struct run *run = block_of(thread)->run;
  if (order & EMULATED_RELEASE) deliver_torn(run);
  if ((uintptr_t)address % size) emulation_misaligned();
  if (run->overlaps && !thread->awaited) fail("touched memory before it awaited the launch before");
  run->progress |= access & EMULATED_STORE;
  if (run->random ? (next_random(run) >> 20) % 8 == 0 : ++thread->polls >= POLLS) emulation_give_way();
  if (!block_of(thread)->races) return;
  const char *wrong = races_atomic(racer(thread), address, size, access & EMULATED_LOAD, access & EMULATED_STORE, order,
                                   scope, __builtin_return_address(0));
  if (wrong) fail(wrong);
}

void emulation_fence(int scope) {
  struct emulated_thread *thread = emulated_self;
  deliver_torn(block_of(thread)->run);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (block_of(thread)->races) races_fence(racer(thread), scope);
}

void emulation_plain_access(const void *address, uint32_t size, bool write, const void *code) {
  struct emulated_thread *thread = emulated_self;
  if (!thread || !block_of(thread)->races) return;
  const struct run *run = block_of(thread)->run;
  if ((uintptr_t)address - (uintptr_t)run->stacks < run->stacks_size) return;  // its own
  const char *wrong = races_access(racer(thread), address, size, write, false, code);
  if (wrong) fail(wrong);
}

static void release(struct block *block, uint32_t barrier) {
  struct barrier *at = &block->barriers[barrier];
  at->last_passed = at->passed;
  at->arrived = at->passed = 0;
  if (block->races) {
    races_clear(&at->last_meeting);
    at->last_meeting = at->meeting;
    at->meeting = (struct race_meeting){0};
  }
  block->run->progress = true;
  for (uint32_t i = 0; i < block->run->threads; i++) {
    if (block->states[i] == AT_BARRIER + barrier) set_state(block, i, READY);
  }
}

uint32_t emulation_sync(uint32_t barrier, uint32_t count, bool predicate, bool wait) {
  struct emulated_thread *thread = emulated_self;
  struct block *block = block_of(thread);
  if (barrier >= BARRIERS || (barrier && (!count || count % WARP))) fail("uses a barrier that does not exist");
  struct barrier *at = &block->barriers[barrier];
  at->passed += predicate;
  at->arrived++;
  if (block->races) races_join(&at->meeting, racer(thread));
  if (at->arrived >= (barrier ? count : block->alive)) {
    release(block, barrier);
  } else if (wait) {
    set_state(block, thread->number, (unsigned char)(AT_BARRIER + barrier));
    to_scheduler(thread);
  }
  if (block->races && wait) races_take(&at->last_meeting, racer(thread));
  return at->last_passed;
}

// Computes the result of one lane from the values of all lanes of the mask.
static uint64_t combined(const struct block *block, uint32_t first, uint32_t mask, const struct emulated_exchange *mine) {
  uint64_t result = 0;
  bool begun = false;
  for (uint32_t lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    uint64_t word = thread_of(block, first + lane)->exchange.words[0];
    switch (mine->operation) {
      case EXCHANGE_BALLOT: result |= (uint64_t)(word != 0) << lane; break;
      case EXCHANGE_MATCH: result |= (uint64_t)(word == mine->words[0]) << lane; break;
      case EXCHANGE_ADD: result += word; break;
      case EXCHANGE_MIN: result = !begun || (int64_t)word < (int64_t)result ? word : result; break;
      case EXCHANGE_MAX: result = !begun || (int64_t)word > (int64_t)result ? word : result; break;
      case EXCHANGE_AND: result = begun ? result & word : word; break;
      case EXCHANGE_OR: result |= word; break;
      case EXCHANGE_XOR: result ^= word; break;
    }
    begun = true;
  }
  return result;
}

// A line of 128 bytes is stored in the order of its addresses and loaded against it, without a switch in between. So a
// flag in its last word proves that the rest has arrived, as one access of the whole would. On a link that tears lines,
// as PCIe may, the first half arrives later.
static void move_line(struct run *run, struct emulated_exchange *lane, bool store) {
  uint64_t *address = lane->address;
  if (store && lines_torn && (uintptr_t)address % 128 < 64) {
    if (run->torn_count == run->torn_capacity) {
      run->torn_capacity = 2 * run->torn_capacity + 64;
      run->torn = realloc(run->torn, run->torn_capacity * sizeof *run->torn);
    }
    run->torn[run->torn_count++] = (struct torn){address, {lane->words[0], lane->words[1]}};
  } else if (store) {
    __atomic_store_n(address, lane->words[0], __ATOMIC_RELEASE);
    __atomic_store_n(address + 1, lane->words[1], __ATOMIC_RELEASE);
  } else {
    lane->words[1] = __atomic_load_n(address + 1, __ATOMIC_ACQUIRE);
    lane->words[0] = __atomic_load_n(address, __ATOMIC_ACQUIRE);
  }
}

// __syncwarp(), which alone orders accesses.
static void meet(struct block *block, uint32_t first, uint32_t lanes) {
  struct race_meeting meeting = {0};
  for (uint32_t lane = 0; lane < WARP; lane++) {
    if (lanes >> lane & 1) races_join(&meeting, &block->races[first + lane]);
  }
  for (uint32_t lane = 0; lane < WARP; lane++) {
    if (lanes >> lane & 1) races_take(&meeting, &block->races[first + lane]);
  }
  races_clear(&meeting);
}

static void exchange(struct block *block, uint32_t warp, uint32_t mask) {
  uint32_t first = warp * WARP, lanes = mask & block->warps[warp].alive;
  if (block->races && lanes && thread_of(block, first + (uint32_t)__builtin_ctz(lanes))->exchange.operation == EXCHANGE_SYNC) {
    meet(block, first, lanes);
  }
  uint64_t results[WARP];
  for (uint32_t lane = 0; lane < WARP; lane++) {
    if (!(lanes >> lane & 1)) continue;
    const struct emulated_exchange *mine = &thread_of(block, first + lane)->exchange;
    results[lane] = mine->words[0];
    if (mine->operation == EXCHANGE_SHUFFLE) {
      if (mine->lane < WARP && lanes >> mine->lane & 1) results[lane] = thread_of(block, first + mine->lane)->exchange.words[0];
    } else if (mine->operation >= EXCHANGE_BALLOT && mine->operation <= EXCHANGE_XOR) {
      results[lane] = combined(block, first, lanes, mine);
    }
  }
  for (uint32_t i = 0; i < WARP; i++) {
    uint32_t up = i, down = WARP - 1 - i;
    if (lanes >> up & 1) {
      struct emulated_exchange *mine = &thread_of(block, first + up)->exchange;
      if (mine->operation == EXCHANGE_STORE_LINE) move_line(block->run, mine, true);
      else if (mine->operation != EXCHANGE_LOAD_LINE) mine->words[0] = results[up];
      if (block->states[first + up] == AT_WARP) set_state(block, first + up, READY);
    }
    if (lanes >> down & 1) {
      struct emulated_exchange *mine = &thread_of(block, first + down)->exchange;
      if (mine->operation == EXCHANGE_LOAD_LINE) move_line(block->run, mine, false);
    }
  }
}

void emulation_exchange(uint32_t mask) {
  struct emulated_thread *thread = emulated_self;
  struct block *block = block_of(thread);
  uint32_t number = thread->number / WARP, bit = 1u << thread->number % WARP;
  struct warp *warp = &block->warps[number];
  if (!(mask & bit)) fail("is not in the mask that it gives");
  uint32_t i = WARP;
  for (uint32_t k = WARP; k-- > 0;) {
    if (!warp->meetings[k].arrived) i = k;
    if (warp->meetings[k].arrived && warp->meetings[k].mask == mask) {
      i = k;
      break;
    }
  }
  warp->meetings[i].mask = mask;
  warp->meetings[i].arrived |= bit;
  if (warp->meetings[i].arrived == (mask & warp->alive)) {
    warp->meetings[i].arrived = 0;
    exchange(block, number, mask);
  } else {
    set_state(block, thread->number, AT_WARP);
    to_scheduler(thread);
  }
}

void emulation_bulk(void *target, const void *source, uint32_t bytes, uint64_t *barrier) {
  struct emulated_thread *thread = emulated_self;
  struct block *block = block_of(thread);
  if ((uintptr_t)target % 16 || (uintptr_t)source % 16 || bytes % 16 || !bytes) fail("copies in bulk what is not aligned to 16 bytes");
  if (block->bulk_count == block->bulk_capacity) {
    block->bulk_capacity = block->bulk_capacity ? 2 * block->bulk_capacity : 16;
    block->bulks = realloc(block->bulks, block->bulk_capacity * sizeof *block->bulks);
  }
  if (block->races) races_tell(racer(thread), &block->races[block->run->threads]);
  block->bulks[block->bulk_count++] = (struct bulk){thread, thread->bulk_group, bytes, target, source, barrier};
}

void emulation_bulk_commit(void) { emulated_self->bulk_group++; }

void emulation_bulk_wait(uint32_t groups) {
  struct emulated_thread *thread = emulated_self;
  for (;;) {
    bool pending = false;
    struct block *block = block_of(thread);
    for (uint32_t i = 0; i < block->bulk_count; i++) {
      const struct bulk *bulk = &block->bulks[i];
      pending |= bulk->thread == thread && !bulk->barrier && bulk->group + groups < thread->bulk_group;
    }
    if (!pending) {
      if (block->races) races_tell(&block->races[block->run->threads], racer(thread));
      return;
    }
    emulation_give_way();
  }
}

// In the 8 bytes of a barrier.
struct transaction {
  uint16_t pending, expected : 15, odd : 1;
  int32_t bytes;
};

_Static_assert(sizeof(struct transaction) == sizeof(uint64_t), "a barrier has 8 bytes");

void emulation_barrier_init(uint64_t *barrier, uint32_t arrivals) {
  *(struct transaction *)barrier = (struct transaction){.pending = (uint16_t)arrivals, .expected = (uint16_t)arrivals & 0x7fff};
}

void emulation_barrier_arrive(uint64_t *barrier, uint32_t arrivals, int32_t bytes) {
  struct transaction *at = (struct transaction *)barrier;
  at->pending = (uint16_t)(at->pending - arrivals);
  at->bytes += bytes;
  if (emulated_self) {
    block_of(emulated_self)->run->progress = true;
    if (block_of(emulated_self)->races) races_atomic(racer(emulated_self), barrier, 0, true, true, RACE_RELEASE, 0, NULL);
  }
  if (at->pending == 0 && at->bytes == 0) {
    at->odd ^= 1;
    at->pending = at->expected;
  }
}

bool emulation_barrier_is_over(const uint64_t *barrier, uint32_t parity) {
  bool over = ((const struct transaction *)barrier)->odd != (parity & 1);
  if (over && block_of(emulated_self)->races) {
    races_atomic(racer(emulated_self), barrier, 0, true, false, RACE_ACQUIRE, 0, NULL);
  }
  return over;
}

static void carry(void) {
  struct run *run = block_of(emulated_self)->run;
  memcpy(run->carried->target, run->carried->source, run->carried->bytes);
  void *stack_pointer;
  for (;;) emulation_switch(&stack_pointer, run->scheduler);
}

static void do_bulk(struct block *block) {
  struct run *run = block->run;
  for (uint32_t i = 0; i < block->bulk_count;) {
    if (run->random && next_random(run) >> 20 & 1) {
      i++;
      continue;
    }
    struct bulk bulk = block->bulks[i];
    // On a stack that can be left: an address that is wrong is the fault of the thread that gave it.
    void *courier;
    emulation_prepare(&courier, run->courier, run->courier + COURIER_STACK, carry);
    emulated_self = bulk.thread;
    run->carried = &bulk;
    emulation_switch(&run->scheduler, courier);
    emulated_self = NULL;
    if (run->ended_early) return;
    if (block->races) {
      struct race_thread *copier = &block->races[run->threads];
      const char *wrong = races_access(copier, bulk.source, bulk.bytes, false, false, NULL);
      if (!wrong) wrong = races_access(copier, bulk.target, bulk.bytes, true, false, NULL);
      if (wrong) {
        char text[400];
        snprintf(text, sizeof text, "copies in bulk: %s", wrong);
        emulated_self = bulk.thread;
        end_early(run, EMULATION_FAILED, text);
        emulated_self = NULL;
        return;
      }
      if (bulk.barrier) races_atomic(copier, bulk.barrier, 0, true, true, RACE_RELEASE, 0, NULL);
    }
    if (bulk.barrier) emulation_barrier_arrive(bulk.barrier, 0, -(int32_t)bulk.bytes);
    // The order of copies is free, but a wait for a group counts the remaining ones.
    block->bulks[i] = block->bulks[--block->bulk_count];
    run->progress = true;
  }
}

static void thread_main(void) {
  struct emulated_thread *thread = emulated_self;
  struct block *block = block_of(thread);
  block->run->kernel->body(block->run->parameters);
  if (block->run->overlaps && !thread->awaited) fail("ended without having awaited the launch before");
  uint32_t number = thread->number / WARP;
  struct warp *warp = &block->warps[number];
  warp->alive &= ~(1u << thread->number % WARP);
  for (uint32_t i = 0; i < WARP; i++) {
    uint32_t arrived = warp->meetings[i].arrived;
    if (arrived && arrived == (warp->meetings[i].mask & warp->alive)) {
      warp->meetings[i].arrived = 0;
      exchange(block, number, warp->meetings[i].mask);
    }
  }
  block->alive--;
  block->run->progress = true;
  if (block->barriers[0].arrived && block->barriers[0].arrived >= block->alive) release(block, 0);
  set_state(block, thread->number, ENDED);
  for (;;) to_scheduler(thread);
}

static void begin_block(struct run *run, struct block *block, const unsigned *size, const unsigned *grid) {
  uint64_t number = run->next++;
  block->shown.index = (struct emulated_index){(uint32_t)(number % grid[0]), (uint32_t)(number / grid[0] % grid[1]),
                                               (uint32_t)(number / grid[0] / grid[1])};
  block->alive = block->ready = run->threads;
  memset(block->states, READY, run->threads);
  memset(block->warps, 0, sizeof block->warps);
  for (int i = 0; i < BARRIERS; i++) {
    races_clear(&block->barriers[i].meeting);
    races_clear(&block->barriers[i].last_meeting);
  }
  memset(block->barriers, 0, sizeof block->barriers);
  // New shared memory of a real GPU is not zero.
  memset(block->shown.dynamic_shared, 0xcd, block->shown.dynamic_size);
  for (uint32_t i = 0; i < run->threads; i++) {
    struct emulated_thread *thread = thread_of(block, i);
    *thread = (struct emulated_thread){.block = &block->shown, .number = i,
                                       .index = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]}};
    emulation_prepare(&thread->stack_pointer, block->stacks + (size_t)i * STACK, (unsigned char *)thread, thread_main);
    block->warps[i / WARP].alive |= 1u << i % WARP;
  }
  if (block->races) {
    // Another launch may have had it.
    races_clean(block->shown.static_shared, (size_t)run->kernel->static_shared);
    races_clean(block->shown.dynamic_shared, block->shown.dynamic_size);
  }
  for (uint32_t i = 0; block->races && i <= run->threads; i++) {
    uint32_t slot = run->slots + (uint32_t)(block - run->blocks) * (run->threads + 1) + i;
    races_leave(&block->races[i], &run->result, &run->caused_result);
    races_start(&block->races[i], slot, run->gpu, run->known, run->caused);
  }
}

// Only steps that share no divisor with the number of threads visit all of them.
static bool coprime(uint32_t a, uint32_t b) {
  while (b) {
    uint32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a == 1;
}

// Lets each thread of a block that is ready run until it waits.
static void run_block(struct run *run, struct block *block) {
  uint32_t threads = run->threads, start = 0, step = 1;
  if (run->random) {
    start = (uint32_t)(next_random(run) >> 20) % threads;
    step = (uint32_t)(next_random(run) >> 20) % threads + 1;
    while (!coprime(step, threads)) step++;
  }
  for (uint32_t i = 0, at = start; i < threads && !run->ended_early; i++, at = (at + step) % threads) {
    if (block->states[at] != READY) continue;
    if (run->random && (next_random(run) >> 20) % 4 == 0) continue;
    struct emulated_thread *thread = thread_of(block, at);
    emulated_self = thread;
    emulation_switch(&run->scheduler, thread->stack_pointer);
    emulated_self = NULL;
    if (!emulation_stack_holds(thread->stack_pointer, block->stacks + (size_t)at * STACK + STACK_RESERVE) && !run->ended_early) {
      emulated_self = thread;
      end_early(run, EMULATION_FAILED, "has used up its stack");
      emulated_self = NULL;
    }
  }
}

static void report_deadlock(struct run *run) {
  char text[200];
  for (uint32_t b = 0; b < run->resident; b++) {
    struct block *block = &run->blocks[b];
    for (uint32_t i = 0; i < run->threads; i++) {
      if (block->states[i] == ENDED) continue;
      uint32_t barrier = (uint32_t)block->states[i] - AT_BARRIER;
      if (block->states[i] == AT_WARP) snprintf(text, sizeof text, "waits for lanes of its warp that never come");
      else snprintf(text, sizeof text, "waits for ever at barrier %u of its block", barrier);
      emulated_self = thread_of(block, i);
      end_early(run, EMULATION_FAILED, text);
      emulated_self = NULL;
      return;
    }
  }
}

static void schedule(struct run *run, const unsigned *grid, const unsigned *size, bool (*stopped)(void *), void *argument) {
  uint32_t idle = 0;
  for (;;) {
    bool ready = false, alive = false;
    run->progress = false;
    uint32_t first = run->random ? (uint32_t)(next_random(run) >> 20) % run->resident : 0;
    for (uint32_t i = 0; i < run->resident && !run->ended_early; i++) {
      struct block *block = &run->blocks[(first + i) % run->resident];
      if (block->bulk_count) do_bulk(block);
      ready |= block->ready || block->bulk_count;
      if (block->ready) run_block(run, block);
      if (!block->alive && block->bulk_count && !run->ended_early) {
        end_early(run, EMULATION_FAILED, "a block ended with bulk copies that it has not waited for");
      }
      if (!block->alive && run->next < run->total) {
        begin_block(run, block, size, grid);
        ready = true;
      }
      alive |= block->alive;
    }
    if (run->ended_early || !alive) return;
    if (run->blocks[0].races) {
      races_unlock();
      races_lock();
    }
    if (stopped(argument)) {
      run->end = EMULATION_STOPPED;
      return;
    }
    if (!ready) {
      report_deadlock(run);
    } else if (run->progress) {
      idle = 0;
    } else if (++idle < 100) {
      sched_yield();  // others have to do something first
    } else {
      nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
  }
}

// State that a stream's thread keeps between launches.
struct kept {
  unsigned char *stacks, *statics, *signals, *courier;
  size_t stacks_size, statics_size;
  uint32_t slots, slot_count;
  struct knowledge *known, *caused;     // the clocks before its next launch
};

static pthread_key_t kept_key;
static struct sigaction before[64];

#define SIGNAL_STACK (64u << 10)

static void forget(void *value) {
  struct kept *kept = value;
  stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  if (kept->stacks) munmap(kept->stacks, kept->stacks_size);
  if (kept->statics) munmap(kept->statics, kept->statics_size);
  if (kept->slot_count) {
    races_lock();
    races_give_slots(kept->slots, kept->slot_count);
    races_forget(&kept->known);
    races_forget(&kept->caused);
    races_unlock();
  }
  free(kept->signals);
  free(kept->courier);
  free(kept);
}

// A thread of a kernel that accesses an invalid address ends its launch, as on a GPU. Other faults go to the previous
// handler.
static void on_fault(int number, siginfo_t *info, void *context) {
  struct emulated_thread *thread = emulated_self;
  if (thread && emulation_can_leave) {
    struct run *run = block_of(thread)->run;
    char text[100];
    snprintf(text, sizeof text, "%s %p", number == SIGFPE ? "divides by zero at" : "touches", info->si_addr);
    end_early(run, EMULATION_FAULT, text);
    emulation_leave(context, run->scheduler);
    return;
  }
  const struct sigaction *old = &before[number];
  if (old->sa_flags & SA_SIGINFO) old->sa_sigaction(number, info, context);
  else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) old->sa_handler(number);
  else signal(number, SIG_DFL);
}

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE};

static void prepare_process(void) {
  pthread_key_create(&kept_key, forget);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    sigaction(faults[i], NULL, &before[faults[i]]);
    struct sigaction ours = before[faults[i]];
    ours.sa_sigaction = on_fault;
    ours.sa_flags |= SA_SIGINFO | SA_ONSTACK;
    sigaction(faults[i], &ours, NULL);
  }
}

static struct kept *prepare_thread(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, prepare_process);
  struct kept *kept = pthread_getspecific(kept_key);
  if (kept) return kept;
  kept = calloc(1, sizeof *kept);
  kept->signals = malloc(SIGNAL_STACK);
  kept->courier = malloc(COURIER_STACK);
  sigaltstack(&(stack_t){.ss_sp = kept->signals, .ss_size = SIGNAL_STACK}, NULL);
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigaddset(&set, faults[i]);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  pthread_setspecific(kept_key, kept);
  return kept;
}

void emulation_catch_up(void) {
  if (!emulation_is_on() || !races_wanted()) return;
  struct kept *kept = prepare_thread();
  races_lock();
  races_catch_up(&kept->known);
  races_unlock();
}

static unsigned char *keep(unsigned char **memory, size_t *size, size_t wanted, int fill) {
  if (*size < wanted) {
    if (*memory) munmap(*memory, *size);
    *memory = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*memory == MAP_FAILED) *memory = NULL;
    *size = *memory ? wanted : 0;
    if (*memory && fill) memset(*memory, fill, wanted);
  }
  return *memory;
}

enum emulation_end emulation_run(const struct emulated_kernel *kernel, const unsigned *grid, const unsigned *block,
                                 unsigned shared, bool overlaps, const unsigned char *parameters, int gpu,
                                 const struct knowledge *before, bool (*stopped)(void *argument),
                                 void *argument, char *text, size_t text_size) {
  struct kept *kept = prepare_thread();
  struct run run = {.kernel = kernel, .parameters = parameters, .overlaps = overlaps, .threads = block[0] * block[1] * block[2],
                    .total = (uint64_t)grid[0] * grid[1] * grid[2], .courier = kept->courier, .text = text, .text_size = text_size};
  static uint64_t launches;
  if (seed) run.random = seed * 0x9e3779b97f4a7c15u + __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
  uint32_t room = MAX_RESIDENT / run.threads;
  run.resident = (uint32_t)(run.total < room ? run.total : room);
  size_t statics = ((size_t)kernel->static_shared + 4095) / 4096 * 4096, dynamic = ((size_t)shared + 127) / 128 * 128;
  unsigned char *static_shared = keep(&kept->statics, &kept->statics_size, run.resident * statics, 0xcd);
  unsigned char *stacks = keep(&kept->stacks, &kept->stacks_size, (size_t)run.resident * run.threads * STACK, 0);
  unsigned char *dynamic_shared = aligned_alloc(128, run.resident * dynamic + 128);
  run.blocks = calloc(run.resident, sizeof *run.blocks);
  unsigned char *states = calloc(run.resident, run.threads);
  uint32_t racers = run.resident * (run.threads + 1);
  struct race_thread *races = NULL;
  run.gpu = gpu;
  run.stacks = stacks;
  run.stacks_size = (size_t)run.resident * run.threads * STACK;
  if (races_wanted()) {
    races_lock();
    if (kept->slot_count < racers) {
      races_give_slots(kept->slots, kept->slot_count);
      kept->slot_count = races_take_slots(racers, &kept->slots) ? racers : 0;
    }
    // A new thread may run a branch of a graph, after launches that it does not know.
    if (!kept->known) races_catch_up(&kept->known);
    races_merge(&kept->known, before);
    run.known = kept->known;
    run.caused = kept->caused;
    run.slots = kept->slots;
    if (kept->slot_count) races = calloc(racers, sizeof *races);
    else races_unlock();
  }
  if (!stacks || (statics && !static_shared) || !run.blocks || !states || !dynamic_shared) {
    end_early(&run, EMULATION_FAILED, "no memory for its threads");
  } else {
    for (uint32_t i = 0; i < run.resident; i++) {
      run.blocks[i] = (struct block){
          .shown = {.size = {block[0], block[1], block[2]}, .grid = {grid[0], grid[1], grid[2]},
                    .static_shared = static_shared + i * statics, .dynamic_shared = dynamic_shared + i * dynamic,
                    .dynamic_size = shared},
          .run = &run, .stacks = stacks + (size_t)i * run.threads * STACK, .states = states + (size_t)i * run.threads,
          .races = races ? races + i * (run.threads + 1) : NULL};
      begin_block(&run, &run.blocks[i], block, grid);
    }
    schedule(&run, grid, block, stopped, argument);
  }
  deliver_torn(&run);
  free(run.torn);
  if (races) {
    for (uint32_t i = 0; i < racers; i++) races_leave(&races[i], &run.result, &run.caused_result);
    races_merge(&kept->known, run.result);
    races_merge(&kept->caused, run.caused_result);
    races_forget(&run.caused_result);
    races_completed(run.result);
    races_forget(&run.result);
    for (uint32_t i = 0; i < run.resident * BARRIERS; i++) {
      races_clear(&run.blocks[i / BARRIERS].barriers[i % BARRIERS].meeting);
      races_clear(&run.blocks[i / BARRIERS].barriers[i % BARRIERS].last_meeting);
    }
    races_unlock();
    free(races);
  }
  for (uint32_t i = 0; run.blocks && i < run.resident; i++) free(run.blocks[i].bulks);
  free(run.blocks);
  free(states);
  free(dynamic_shared);
  // Threads that did not finish leak nothing: kernels own no memory.
  if (kept->stacks_size > (256u << 20)) {
    munmap(kept->stacks, kept->stacks_size);
    kept->stacks = NULL;
    kept->stacks_size = 0;
  }
  return run.end;
}
