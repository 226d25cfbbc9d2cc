// SPDX-License-Identifier: Apache-2.0
// Finds accesses of kernels' threads that nothing orders: of one block, one GPU, or several. Used by emulation.c.
//
// Every thread has a slot with a clock, and knows a clock of every slot: accesses there up to that clock are ordered
// before it. A release publishes the clocks that a thread knows; an acquire merges them. For every four bytes, the last
// writer and readers are recorded with their clocks; an access that doesn't know these clocks is a race, unless both
// are of atomics.cuh.
#ifndef RACES_H
#define RACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct knowledge;

// The clocks that a thread, or an asynchronous unit, knows.
struct race_thread {
  uint32_t slot, clock, first;          // first: the clock as it began; earlier ones may be another stream's
  int gpu;
  struct knowledge *known;              // shared; its own clock is not in it
  struct knowledge *fenced[2];          // clocks that its stores release since a fence of GPU or system scope
  uint32_t fenced_clock[2];
  struct knowledge *seen[2];            // clocks that its next fence acquires
  // Clocks of threads whose packets it has seen by relaxed loads: reads before these packets are complete. This orders
  // only writes after such reads.
  struct knowledge *caused;
  uint64_t host_version[3];
};

// The clocks that a barrier has collected.
struct race_meeting {
  struct knowledge *known, *last, *caused, *last_caused;
};

bool races_wanted(void);

// Only one launch runs at a time while races are detected.
void races_lock(void);
void races_unlock(void);

// Returns the clocks of launches that have ended; the host may have waited for them before it enqueues one.
struct knowledge *races_so_far(void);
void races_forget(struct knowledge **known);
void races_merge(struct knowledge **into, const struct knowledge *other);

// Takes count consecutive slots; false: too few are free. A stream keeps its slots, because its accesses with a slot
// are ordered.
bool races_take_slots(uint32_t count, uint32_t *first);
void races_give_slots(uint32_t first, uint32_t count);

void races_start(struct race_thread *thread, uint32_t slot, int gpu, struct knowledge *known, struct knowledge *caused);
void races_leave(struct race_thread *thread, struct knowledge **result, struct knowledge **caused);
void races_catch_up(struct knowledge **known);
void races_completed(const struct knowledge *result);

// Forgets the accesses to this memory.
void races_clean(const void *address, size_t size);

// Returns NULL or what is wrong.
const char *races_access(struct race_thread *thread, const void *address, uint32_t size, bool write, bool atomic,
                         const void *code);

enum race_order { RACE_RELAXED, RACE_ACQUIRE = 1, RACE_RELEASE = 2 };

// An atomic access; scope 0 is the GPU, 1 all of them and the host. It is tracked as an access, too.
const char *races_atomic(struct race_thread *thread, const void *address, uint32_t size, bool load, bool store, int order,
                         int scope, const void *code);
void races_fence(struct race_thread *thread, int scope);

// All of them meet: each then knows what each knew.
void races_join(struct race_meeting *meeting, struct race_thread *thread);
void races_take(const struct race_meeting *meeting, struct race_thread *thread);
void races_clear(struct race_meeting *meeting);

// Orders the other thread after this one.
void races_tell(struct race_thread *thread, struct race_thread *other);

bool fake_is_host(const void *address);                 // memory.c
#endif
