// SPDX-License-Identifier: Apache-2.0
/* The process's signal actions around calls of a plugin: netplugin_signals.c. */
#ifndef FLUXCCL_NETPLUGIN_SIGNALS_H
#define FLUXCCL_NETPLUGIN_SIGNALS_H

#include <signal.h>
#include <stdint.h>

typedef struct {
  struct sigaction actions[NSIG];
  char known[NSIG];
} SavedSignals;

void fluxccl_net_save_signals(SavedSignals *to);

/* Gives back the actions that were changed since. */
void fluxccl_net_restore_signals(const SavedSignals *from);

/* Returns the signals that were given back since the last call: bit n - 1 for signal n. */
uint64_t fluxccl_net_kept_signals(void);

#endif
