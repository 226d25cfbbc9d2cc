// SPDX-License-Identifier: Apache-2.0
// Kernels that were compiled for the CPU, run by this driver: every thread of a launch is a fiber, and all fibers of a
// launch take turns on the thread of the stream. C and C++; the headers in emulation/ are built on it.
#ifndef EMULATION_H
#define EMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMULATION_API __attribute__((visibility("default")))

struct emulated_kernel {
  const char *name;
  size_t parameter_count;
  const uint32_t *parameter_sizes, *parameter_offsets;
  int max_threads;
  int static_shared;                    // bytes for all kernels of its library, each has its own part of them
  void (*body)(const unsigned char *parameters);
};

struct emulated_index {
  uint32_t x, y, z;
};

struct emulated_block;

// Values that lanes of a warp exchange.
struct emulated_exchange {
  int operation;
  uint32_t lane;                        // the lane to read from, or an operand
  void *address;
  uint64_t words[2];
};

// A thread of a kernel; lies where its stack begins.
struct emulated_thread {
  void *stack_pointer;
  struct emulated_block *block;
  struct emulated_index index;
  uint32_t number;                      // in its block
  uint32_t polls;                       // since it last gave way
  uint32_t bulk_group;                  // of the bulk stores that it has not committed
  bool awaited;                         // the launch before
  struct emulated_exchange exchange;
};

struct emulated_block {
  struct emulated_index index, size, grid;
  unsigned char *static_shared, *dynamic_shared;
  uint32_t dynamic_size;
};

enum emulated_operation {
  EXCHANGE_SYNC,
  EXCHANGE_SHUFFLE,
  EXCHANGE_BALLOT,
  EXCHANGE_MATCH,
  EXCHANGE_ADD,
  EXCHANGE_MIN,
  EXCHANGE_MAX,
  EXCHANGE_AND,
  EXCHANGE_OR,
  EXCHANGE_XOR,
  EXCHANGE_STORE_LINE,
  EXCHANGE_LOAD_LINE,
};

// The thread that runs; every stream has one at a time.
extern EMULATION_API __thread struct emulated_thread *emulated_self __attribute__((tls_model("initial-exec")));

EMULATION_API void emulation_register(const struct emulated_kernel *kernel);

// Yields to other threads. A thread calls it while it waits.
EMULATION_API void emulation_give_way(void);

// Before every access with a memory order: lets others run now and then, at random if so asked for. Scope 0 is the GPU,
// 1 all of them and the host.
enum emulated_access { EMULATED_LOAD = 1, EMULATED_STORE = 2, EMULATED_CHANGE = 3 };
enum emulated_order { EMULATED_RELAXED = 0, EMULATED_ACQUIRE = 1, EMULATED_RELEASE = 2 };
EMULATION_API void emulation_access(const void *address, uint32_t size, int access, int order, int scope);
EMULATION_API void emulation_fence(int scope);

// Before every other access, where races are looked for.
EMULATION_API void emulation_plain_access(const void *address, uint32_t size, bool write, const void *code);

// A barrier of a block: 0 is that of __syncthreads(), for all threads that have not ended, others are for count.
// Returns how many threads have passed a predicate that holds.
EMULATION_API uint32_t emulation_sync(uint32_t barrier, uint32_t count, bool predicate, bool wait);

// Waits for all lanes of the mask that have not ended; the result is in the thread's exchange.
EMULATION_API void emulation_exchange(uint32_t mask);

// The first call of each thread of a launch that may overlap.
EMULATION_API void emulation_await_launch_before(void);

EMULATION_API void emulation_trap(void) __attribute__((noreturn));

// A thread has accessed an address that is no multiple of the type's alignment; a GPU ends the kernel then.
EMULATION_API void emulation_misaligned(void) __attribute__((noreturn));

// Bulk copies happen later than they are asked for. Without a barrier a store, in the thread's current group.
EMULATION_API void emulation_bulk(void *target, const void *source, uint32_t bytes, uint64_t *barrier);
EMULATION_API void emulation_bulk_commit(void);
EMULATION_API void emulation_bulk_wait(uint32_t groups);
EMULATION_API void emulation_barrier_init(uint64_t *barrier, uint32_t arrivals);
EMULATION_API void emulation_barrier_arrive(uint64_t *barrier, uint32_t arrivals, int32_t bytes);
EMULATION_API bool emulation_barrier_is_over(const uint64_t *barrier, uint32_t parity);

enum emulation_end { EMULATION_DONE, EMULATION_STOPPED, EMULATION_FAULT, EMULATION_FAILED };

struct knowledge;

// The calling stream has waited for others.
void emulation_catch_up(void);

// For the driver: returns whether kernels run, finds one, and runs one launch. The launch ends early if stopped returns
// true, and is ordered after the accesses in before.
bool emulation_is_on(void);
const struct emulated_kernel *emulation_find(const char *name);
enum emulation_end emulation_run(const struct emulated_kernel *kernel, const unsigned *grid, const unsigned *block,
                                 unsigned shared, bool overlaps, const unsigned char *parameters, int gpu,
                                 const struct knowledge *before, bool (*stopped)(void *argument),
                                 void *argument, char *text, size_t text_size);

#ifdef __cplusplus
}
#endif
#endif
