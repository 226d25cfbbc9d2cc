// SPDX-License-Identifier: Apache-2.0
// Creates the JVM on its own thread. A JVM that refuses to start normally ends its process. Here
// its hooks block that thread forever instead, and the process continues without a JVM.
#define _GNU_SOURCE
#include "ncclnet.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STACK_BYTES = 4 << 20, FIRST_SIGNAL = 1 };

// HotSpot's variable with the signal that stops a thread; it is SIGUSR2 without.
static const char *const SIGNAL_VARIABLE = "_JAVA_SR_SIGNUM";

// There is one attempt in a process, and the hooks have no argument, so this is its only state.
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  enum { STARTING, RUNNING, REFUSED } state;
  create_jvm create;
  JavaVMInitArgs arguments;
  JavaVM *jvm;
  // Holds the lines that the JVM printed while it started.
  char said[1024];
  size_t length;
} creation = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool is_starting(void) {
  pthread_mutex_lock(&creation.lock);
  bool starting = creation.state == STARTING;
  pthread_mutex_unlock(&creation.lock);
  return starting;
}

static void settle(int state) {
  pthread_mutex_lock(&creation.lock);
  if (creation.state == STARTING) {
    creation.state = state;
  }
  pthread_cond_broadcast(&creation.changed);
  pthread_mutex_unlock(&creation.lock);
}

// A thread of a JVM that did not start may hold its locks, and must not return into it.
static void refuse_and_stay(void) {
  settle(REFUSED);
  for (;;) {
    pause();
  }
}

static void JNICALL at_exit(jint code) {
  if (is_starting()) {
    refuse_and_stay();
  }
  exit(code);
}

static void JNICALL at_abort(void) {
  if (is_starting()) {
    refuse_and_stay();
  }
}

static jint JNICALL print(FILE *to, const char *format, va_list arguments) {
  pthread_mutex_lock(&creation.lock);
  bool keep = creation.state == STARTING;
  int n = 0;
  if (keep && creation.length < sizeof creation.said) {
    size_t room = sizeof creation.said - creation.length;
    n = vsnprintf(creation.said + creation.length, room, format, arguments);
    creation.length += n > 0 && (size_t)n < room ? (size_t)n : n > 0 ? room - 1 : 0;
  }
  pthread_mutex_unlock(&creation.lock);
  return keep ? n : vfprintf(to, format, arguments);
}

static void *create_on_own_thread(void *unused) {
  (void)unused;
  JNIEnv *env = NULL;
  if (creation.create(&creation.jvm, (void **)&env, &creation.arguments) != JNI_OK) {
    settle(REFUSED);
    return NULL;
  }
  (*creation.jvm)->DetachCurrentThread(creation.jvm);
  settle(RUNNING);
  return NULL;
}

// Returns a signal that the program does not use, or 0.
static int free_signal(void) {
  for (int number = SIGRTMAX - 1; number > SIGRTMIN; number--) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL && !(action.sa_flags & SA_SIGINFO)) {
      return number;
    }
  }
  return 0;
}

static bool start_thread(void) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  // The JVM's threads inherit the mask: signals to the process are for the program's own threads. The JVM itself
  // unblocks those that it needs.
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  bool started = pthread_create(&thread, &attributes, create_on_own_thread, NULL) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

// Joins the lines that the JVM printed, for one line of a log.
static void join_lines(char *out, size_t size) {
  size_t length = 0;
  bool apart = false;
  for (size_t i = 0; i < creation.length && length + 3 < size; i++) {
    if (creation.said[i] == '\n' || creation.said[i] == '\r') {
      apart = length > 0;
      continue;
    }
    if (apart) {
      out[length++] = ';';
      out[length++] = ' ';
      apart = false;
    }
    out[length++] = creation.said[i];
  }
  out[length] = 0;
}

JavaVM *create_on_a_thread(create_jvm create, JavaVMOption *options, int count, char *problem, size_t size) {
  const JavaVMOption hooks[CREATE_HOOKS] = {
      {"exit", (void *)at_exit}, {"abort", (void *)at_abort}, {"vfprintf", (void *)print}};
  memcpy(options, hooks, sizeof hooks);
  creation.create = create;
  creation.arguments = (JavaVMInitArgs){JNI_VERSION_10, count, options, JNI_FALSE};
  struct sigaction actions[NSIG];
  bool known[NSIG] = {false};
  for (int number = FIRST_SIGNAL; number < NSIG; number++) {
    known[number] = sigaction(number, NULL, &actions[number]) == 0;
  }
  int chosen = getenv(SIGNAL_VARIABLE) ? 0 : free_signal();
  if (chosen) {
    char text[12];
    snprintf(text, sizeof text, "%d", chosen);
    setenv(SIGNAL_VARIABLE, text, 1);
  }
  if (!start_thread()) {
    settle(REFUSED);
  }
  pthread_mutex_lock(&creation.lock);
  while (creation.state == STARTING) {
    pthread_cond_wait(&creation.changed, &creation.lock);
  }
  bool runs = creation.state == RUNNING;
  pthread_mutex_unlock(&creation.lock);
  if (chosen) {
    unsetenv(SIGNAL_VARIABLE);
  }
  if (runs) {
    return creation.jvm;
  }
  // Its handlers would end the process where the program's own would not.
  for (int number = FIRST_SIGNAL; number < NSIG; number++) {
    if (known[number]) {
      sigaction(number, &actions[number], NULL);
    }
  }
  join_lines(problem, size);
  return NULL;
}
