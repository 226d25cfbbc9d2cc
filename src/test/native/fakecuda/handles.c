// SPDX-License-Identifier: Apache-2.0
#include "fake.h"

struct entry {
  void *handle;
  enum handle_kind kind;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;
static size_t count, capacity;

void fake_handle_add(void *handle, enum handle_kind kind) {
  pthread_mutex_lock(&lock);
  if (count == capacity) {
    capacity = capacity ? 2 * capacity : 64;
    entries = realloc(entries, capacity * sizeof *entries);
  }
  entries[count++] = (struct entry){handle, kind};
  pthread_mutex_unlock(&lock);
}

static size_t find(const void *handle, enum handle_kind kind) {
  size_t i = 0;
  while (i < count && !(entries[i].handle == handle && entries[i].kind == kind)) i++;
  return i;
}

bool fake_handle_is(const void *handle, enum handle_kind kind) {
  pthread_mutex_lock(&lock);
  bool found = find(handle, kind) < count;
  pthread_mutex_unlock(&lock);
  return found;
}

bool fake_handle_remove(void *handle, enum handle_kind kind) {
  pthread_mutex_lock(&lock);
  size_t i = find(handle, kind);
  bool found = i < count;
  if (found) entries[i] = entries[--count];
  pthread_mutex_unlock(&lock);
  return found;
}

void fake_handles_each(enum handle_kind kind, void (*visit)(void *handle, void *argument), void *argument) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].kind == kind) visit(entries[i].handle, argument);
  }
  pthread_mutex_unlock(&lock);
}
