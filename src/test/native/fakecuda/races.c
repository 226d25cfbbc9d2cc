// SPDX-License-Identifier: Apache-2.0
// See races.h.
#define _GNU_SOURCE
#include "races.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 12288u
#define PAGE_BITS 12
#define CELLS (1u << (PAGE_BITS - 2))
#define TABLE_BITS 20

// Immutable while it has several users.
struct knowledge {
  uint32_t users, width;                // later clocks are zero
  uint32_t clocks[];
};

struct access {
  uint32_t slot, clock;
  uint8_t bytes;                        // mask of the four bytes; 0: none
  bool atomic;
  uint32_t code;                        // from the beginning of the library
};

struct cell {
  struct access write, reads[2];
};

struct page {
  uint64_t number;
  struct cell cells[CELLS];
};

// The clocks that the last store to a word releases.
struct word {
  uint64_t address;
  struct knowledge *known;
  uint32_t slot, clock;
  int gpu, scope;
  bool merged;                          // with clocks that earlier stores released
};

static uint32_t clocks[SLOTS];
static bool taken[SLOTS];
static struct page *pages[1u << TABLE_BITS];
static struct word words[1u << TABLE_BITS];
static struct knowledge *completed, *host;
static uint64_t host_version;
static const char *library;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static uint64_t next_ticket, served;

bool races_wanted(void) {
  const char *value = getenv("FAKE_CUDA_RACES");
  return value && *value && strcmp(value, "0");
}

// In ticket order: a thread that unlocks and locks again waits for all earlier waiters.
void races_lock(void) {
  pthread_mutex_lock(&lock);
  uint64_t mine = next_ticket++;
  while (served != mine) pthread_cond_wait(&turned, &lock);
  pthread_mutex_unlock(&lock);
}

void races_unlock(void) {
  pthread_mutex_lock(&lock);
  served++;
  pthread_cond_broadcast(&turned);
  pthread_mutex_unlock(&lock);
}

static struct knowledge *share(struct knowledge *known) {
  if (known) known->users++;
  return known;
}

static void drop(struct knowledge **known) {
  if (*known && --(*known)->users == 0) free(*known);
  *known = NULL;
}

static uint32_t clock_of(const struct knowledge *known, uint32_t slot) {
  return known && slot < known->width ? known->clocks[slot] : 0;
}

// Returns an unshared copy, which may be changed, with at least `least` clocks.
static struct knowledge *own(struct knowledge **known, uint32_t least) {
  struct knowledge *old = *known;
  if (old && old->users == 1 && old->width >= least) return old;
  uint32_t had = old ? old->width : 0, width = least > had ? (least + 511) / 512 * 512 : had;
  struct knowledge *made = malloc(sizeof *made + width * sizeof *made->clocks);
  if (old) memcpy(made->clocks, old->clocks, had * sizeof *made->clocks);
  memset(made->clocks + had, 0, (width - had) * sizeof *made->clocks);
  made->users = 1;
  made->width = width;
  drop(known);
  return *known = made;
}

static void merge(struct knowledge **into, const struct knowledge *other) {
  if (!other || *into == other) return;
  if (!*into) {
    *into = share((struct knowledge *)other);
    return;
  }
  struct knowledge *mine = own(into, other->width);
  for (uint32_t i = 0; i < other->width; i++) {
    if (other->clocks[i] > mine->clocks[i]) mine->clocks[i] = other->clocks[i];
  }
}

static void learn(struct knowledge **into, uint32_t slot, uint32_t clock) {
  if (clock_of(*into, slot) >= clock) return;
  own(into, slot + 1)->clocks[slot] = clock;
}

static bool knows(const struct race_thread *thread, uint32_t slot, uint32_t clock) {
  return (slot == thread->slot && clock >= thread->first) || clock_of(thread->known, slot) >= clock;
}

static void tick(struct race_thread *thread) { thread->clock = ++clocks[thread->slot]; }

struct knowledge *races_so_far(void) {
  races_lock();
  struct knowledge *known = share(completed);
  races_unlock();
  return known;
}

void races_forget(struct knowledge **known) { drop(known); }

void races_merge(struct knowledge **into, const struct knowledge *other) { merge(into, other); }

bool races_take_slots(uint32_t count, uint32_t *first) {
  uint32_t run = 0;
  for (uint32_t i = 0; i < SLOTS; i++) {
    run = taken[i] ? 0 : run + 1;
    if (run == count) {
      *first = i + 1 - count;
      memset(taken + *first, true, count);
      return true;
    }
  }
  return false;
}

void races_give_slots(uint32_t first, uint32_t count) { memset(taken + first, false, count); }

void races_start(struct race_thread *thread, uint32_t slot, int gpu, struct knowledge *known, struct knowledge *caused) {
  *thread = (struct race_thread){.slot = slot, .gpu = gpu, .known = share(known), .caused = share(caused)};
  tick(thread);
  thread->first = thread->clock;
}

void races_leave(struct race_thread *thread, struct knowledge **result, struct knowledge **caused) {
  if (!thread->clock) return;
  merge(result, thread->known);
  learn(result, thread->slot, thread->clock);
  merge(caused, thread->caused);
  drop(&thread->known);
  drop(&thread->caused);
  for (int i = 0; i < 2; i++) {
    drop(&thread->fenced[i]);
    drop(&thread->seen[i]);
  }
  thread->clock = 0;
}

void races_catch_up(struct knowledge **known) { merge(known, completed); }

void races_completed(const struct knowledge *result) { merge(&completed, result); }

static struct page *find_page(uint64_t number, bool make) {
  uint32_t at = (uint32_t)(number * 0x9e3779b97f4a7c15u >> (64 - TABLE_BITS));
  while (pages[at] && pages[at]->number != number) at = (at + 1) & ((1u << TABLE_BITS) - 1);
  if (!pages[at] && make) {
    pages[at] = calloc(1, sizeof **pages);
    pages[at]->number = number;
  }
  return pages[at];
}

void races_clean(const void *address, size_t size) {
  for (uint64_t at = (uint64_t)address; size && at < (uint64_t)address + size; at = ((at >> PAGE_BITS) + 1) << PAGE_BITS) {
    struct page *page = find_page(at >> PAGE_BITS, false);
    if (page) memset(page->cells, 0, sizeof page->cells);
  }
}

static uint32_t offset(const void *code) {
  if (!library) {
    Dl_info found;
    library = dladdr(code, &found) ? found.dli_fbase : "";
  }
  return (uint32_t)((const char *)code - library);
}

static char text[300];

static bool clashes(const struct race_thread *thread, const struct access *before, uint8_t bytes, bool atomic) {
  return (before->bytes & bytes) && !(before->atomic && atomic) && !knows(thread, before->slot, before->clock);
}

static const char *report(const struct race_thread *thread, const struct access *before, const char *what_before,
                          const char *what, uint64_t address, uint32_t code) {
  snprintf(text, sizeof text, "%s 0x%llx at +0x%x, which thread %u %s at +0x%x, and nothing orders that before (this is thread %u)",
           what, (unsigned long long)address, code, before->slot, what_before, before->code, thread->slot);
  return text;
}

static const char *access_cell(struct race_thread *thread, struct cell *cell, uint8_t bytes, bool write, bool atomic,
                               uint64_t address, uint32_t code) {
  const char *wrong = NULL;
  if (clashes(thread, &cell->write, bytes, atomic)) {
    wrong = report(thread, &cell->write, "wrote", write ? "writes" : "reads", address, code);
  }
  struct access mine = {thread->slot, thread->clock, bytes, atomic, code};
  if (write) {
    for (int i = 0; i < 2; i++) {
      const struct access *read = &cell->reads[i];
      if (!wrong && clock_of(thread->caused, read->slot) < read->clock && clashes(thread, read, bytes, atomic)) {
        wrong = report(thread, &cell->reads[i], "read", "writes", address, code);
      }
      cell->reads[i].bytes &= (uint8_t)~bytes;
    }
    // Keeps the other bytes of the last write if the same thread wrote them at the same clock.
    if (cell->write.slot == mine.slot && cell->write.clock == mine.clock && cell->write.atomic == atomic) {
      mine.bytes |= cell->write.bytes;
    }
    cell->write = mine;
  } else {
    const struct access *seen = &cell->write;
    if (atomic && seen->atomic && (seen->bytes & bytes) && !knows(thread, seen->slot, seen->clock)) {
      learn(&thread->caused, seen->slot, seen->clock);
    }
    int at = 0;
    for (int i = 0; i < 2; i++) {
      const struct access *read = &cell->reads[i];
      if (read->bytes && read->slot == mine.slot) {
        if (read->clock == mine.clock && read->atomic == atomic) mine.bytes |= read->bytes;
        at = i;
        break;
      }
      if (!read->bytes || knows(thread, read->slot, read->clock)) at = i;
    }
    cell->reads[at] = mine;
  }
  return wrong;
}

const char *races_access(struct race_thread *thread, const void *address, uint32_t size, bool write, bool atomic,
                         const void *code) {
  const char *wrong = NULL;
  uint64_t from = (uint64_t)address, to = from + size;
  uint32_t at_code = offset(code);
  struct page *page = NULL;
  for (uint64_t word = from / 4 * 4; word < to; word += 4) {
    if (!page || page->number != word >> PAGE_BITS) page = find_page(word >> PAGE_BITS, true);
    uint8_t bytes = 0xf;
    if (word < from) bytes &= (uint8_t)(0xf << (from - word));
    if (word + 4 > to) bytes &= (uint8_t)(0xf >> (word + 4 - to));
    const char *found = access_cell(thread, &page->cells[word >> 2 & (CELLS - 1)], bytes, write, atomic, word, at_code);
    if (!wrong) wrong = found;
  }
  return wrong;
}

static struct word *word_of(uint64_t address, bool make) {
  uint32_t at = (uint32_t)(address * 0x9e3779b97f4a7c15u >> (64 - TABLE_BITS));
  while (words[at].address && words[at].address != address) at = (at + 1) & ((1u << TABLE_BITS) - 1);
  if (!words[at].address) {
    if (!make) return NULL;
    words[at].address = address;
  }
  return &words[at];
}

static void acquire(struct race_thread *thread, const struct word *word, bool now, int scope) {
  if (!word) {
    // No watched thread has stored this word; the host may have, after all stores that it has acquired.
    if (thread->host_version[now ? 2 : scope] != host_version) {
      merge(now ? &thread->known : &thread->seen[scope], host);
      thread->host_version[now ? 2 : scope] = host_version;
    }
    return;
  }
  if (!word->known && !word->clock) return;
  bool reaches = word->gpu == thread->gpu || (word->scope == 1 && scope == 1);
  if (!reaches || (!word->merged && knows(thread, word->slot, word->clock))) return;
  struct knowledge **into = now ? &thread->known : &thread->seen[scope];
  if (!now && !word->merged && clock_of(*into, word->slot) >= word->clock) return;
  merge(into, word->known);
  learn(into, word->slot, word->clock);
}

const char *races_atomic(struct race_thread *thread, const void *address, uint32_t size, bool load, bool store, int order,
                         int scope, const void *code) {
  struct word *word = word_of((uint64_t)address, false);
  if (load) {
    if (order & RACE_ACQUIRE) acquire(thread, word, true, scope);
    else for (int reach = 0; reach < 2; reach++) acquire(thread, word, false, reach);
  }
  const char *wrong = races_access(thread, address, size, store, true, code);
  if (!store) return wrong;
  struct knowledge *known = NULL;
  uint32_t clock = 0;
  int reach = scope;
  if (order & RACE_RELEASE) {
    known = share(thread->known);
    clock = thread->clock;
  } else {
    for (reach = 1; reach >= 0 && !clock; reach--) {
      if (!thread->fenced_clock[reach]) continue;
      known = share(thread->fenced[reach]);
      clock = thread->fenced_clock[reach];
      break;
    }
    if (reach > scope) reach = scope;
    if (reach < 0) reach = 0;
  }
  if (!word && clock) word = word_of((uint64_t)address, true);
  if (word) {
    bool merged = load && word->clock;
    if (merged) {
      // A read-modify-write also releases the clocks that the previous store released.
      merge(&known, word->known);
      learn(&known, word->slot, word->clock);
    }
    drop(&word->known);
    *word = (struct word){.address = word->address, .known = known, .slot = thread->slot, .clock = clock, .gpu = thread->gpu,
                          .scope = reach, .merged = merged};
  }
  if (clock && scope == 1 && fake_is_host(address)) {
    // The host may acquire this store, and release it to other threads.
    merge(&host, word->known);
    learn(&host, thread->slot, clock);
    host_version++;
  }
  if (order & RACE_RELEASE) tick(thread);
  return wrong;
}

void races_fence(struct race_thread *thread, int scope) {
  for (int i = 0; i <= scope; i++) {
    merge(&thread->known, thread->seen[i]);
    drop(&thread->seen[i]);
  }
  for (int i = 0; i <= scope; i++) {
    drop(&thread->fenced[i]);
    thread->fenced[i] = share(thread->known);
    thread->fenced_clock[i] = thread->clock;
  }
  tick(thread);
}

void races_join(struct race_meeting *meeting, struct race_thread *thread) {
  // Most of them know the same.
  if (thread->known && thread->known != meeting->last) {
    merge(&meeting->known, thread->known);
    drop(&meeting->last);
    meeting->last = share(thread->known);
  }
  learn(&meeting->known, thread->slot, thread->clock);
  if (thread->caused && thread->caused != meeting->last_caused) {
    merge(&meeting->caused, thread->caused);
    drop(&meeting->last_caused);
    meeting->last_caused = share(thread->caused);
  }
  tick(thread);
}

void races_take(const struct race_meeting *meeting, struct race_thread *thread) {
  if (!meeting->known) return;
  drop(&thread->known);
  thread->known = share(meeting->known);
  if (meeting->caused) {
    drop(&thread->caused);
    thread->caused = share(meeting->caused);
  }
}

void races_clear(struct race_meeting *meeting) {
  drop(&meeting->known);
  drop(&meeting->last);
  drop(&meeting->caused);
  drop(&meeting->last_caused);
}

void races_tell(struct race_thread *thread, struct race_thread *other) {
  merge(&other->known, thread->known);
  learn(&other->known, thread->slot, thread->clock);
  merge(&other->caused, thread->caused);
  tick(thread);
}
