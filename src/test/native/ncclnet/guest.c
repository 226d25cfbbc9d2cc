// SPDX-License-Identifier: Apache-2.0
// The JVM as a guest of a program that is no Java's.
#define _GNU_SOURCE
#include "interface.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A JVM that refuses to start leaves the program alone: every init fails, and signals are as before.
void scenario_refused(void) {
  struct sigaction before[NSIG], after;
  for (int i = 1; i < NSIG; i++) {
    memset(&before[i], 0, sizeof before[i]);
    sigaction(i, NULL, &before[i]);
  }
  for (int i = 0; i < 2; i++) {
    int result = init();
    CHECK(result == SYSTEM_ERROR, "init: %d", result);
  }
  for (int i = 1; i < NSIG; i++) {
    if (sigaction(i, NULL, &after) == 0) {
      CHECK(after.sa_handler == before[i].sa_handler, "signal %d has another action", i);
    }
  }
  int count;
  CHECK(devices(&count) != 0, "devices");
}

// After an init that failed, NCCL 2.28 and 2.29 call finalize.
void scenario_finalize(void) {
  int result = init(), any;
  CHECK(result != 0, "init succeeded");
  CHECK(try_finalize(NULL) == 0, "finalize without a context");
  CHECK(try_finalize(&any) == 0, "finalize with a context");
}

static volatile sig_atomic_t signals;

static void on_signal(int number) {
  signals += number == SIGUSR2;
}

static void *raise_signal(void *unused) {
  (void)unused;
  pthread_kill(pthread_self(), SIGUSR2);
  return NULL;
}

// The program's handler of SIGUSR2 runs, whichever thread gets the signal.
void scenario_signal(void) {
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGUSR2, &action, NULL);
  int result = init();
  CHECK(result == 0, "init: %d", result);
  raise(SIGUSR2);
  CHECK(signals == 1, "the handler did not run");
  pthread_t thread;
  pthread_create(&thread, NULL, raise_signal, NULL);
  pthread_join(thread, NULL);
  CHECK(signals == 2, "the handler did not run on another thread");
  kill(getpid(), SIGUSR2);
  for (double end = now() + 10; signals < 3;) {
    CHECK(now() < end, "the handler did not run for a signal to the process");
  }
  struct pair pair = connect_pair();
  close_pair(pair);
  CHECK(getenv("_JAVA_SR_SIGNUM") == NULL, "a variable is left in the environment");
  finalize();
}
