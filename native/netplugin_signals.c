// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the process's signal actions while a plugin's code runs. Libraries under plugins take signals
 * such as SIGSEGV when they are loaded; the JVM needs these and dies without them.
 */
#define _GNU_SOURCE
#include "netplugin_signals.h"

#include <string.h>

/* The bytes of a mask that the kernel fills; the rest of a sigset_t may be anything. */
enum { MASK_BYTES = 8 };

/* The signals that were given back, a bit each, since Java last asked. */
static uint64_t kept;

void fluxccl_net_save_signals(SavedSignals *to) {
  for (int number = 1; number < NSIG; number++) {
    to->known[number] = sigaction(number, NULL, &to->actions[number]) == 0;
  }
}

static int is_same(const struct sigaction *a, const struct sigaction *b) {
  return a->sa_handler == b->sa_handler && a->sa_flags == b->sa_flags &&
         memcmp(&a->sa_mask, &b->sa_mask, MASK_BYTES) == 0;
}

void fluxccl_net_restore_signals(const SavedSignals *from) {
  for (int number = 1; number < NSIG; number++) {
    struct sigaction now;
    if (from->known[number] && sigaction(number, NULL, &now) == 0 &&
        !is_same(&now, &from->actions[number]) &&
        sigaction(number, &from->actions[number], NULL) == 0) {
      __atomic_fetch_or(&kept, (uint64_t)1 << (number - 1), __ATOMIC_RELAXED);
    }
  }
}

uint64_t fluxccl_net_kept_signals(void) { return __atomic_exchange_n(&kept, 0, __ATOMIC_RELAXED); }
