// SPDX-License-Identifier: Apache-2.0
/*
 * Stores plugins' log lines for Java. A plugin logs from any thread, also from its own and during
 * calls from Java. So this code only stores a line, and a Java thread fetches it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "jni_support.h"
#include "netplugin_abi.h"

enum { LINES = 256, LABEL_BYTES = 64, FILE_BYTES = 64, TEXT_BYTES = 1024, SLOTS = 16 };

typedef struct {
  int level;
  int line;
  char label[LABEL_BYTES];
  char file[FILE_BYTES];
  char text[TEXT_BYTES];
} LogLine;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived;
static pthread_once_t arrived_once = PTHREAD_ONCE_INIT;

/* Guarded by the mutex. */
static LogLine lines[LINES];
static unsigned first;
static unsigned count;
static unsigned lost;
static char labels[SLOTS][LABEL_BYTES];
static int taken[SLOTS];

/* The least important level that a slot stores. */
static atomic_int levels[SLOTS];

static void prepare(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&arrived, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* TRACE is the least important level; ABORT counts as INFO. */
static int importance(int level) { return level == NET_LOG_ABORT ? NET_LOG_INFO : level; }

static void store(int slot, int level, const char *file, int line, const char *format,
                  va_list arguments) {
  if (importance(level) > atomic_load_explicit(&levels[slot], memory_order_relaxed)) {
    return;
  }
  char text[TEXT_BYTES];
  if (format == NULL || vsnprintf(text, sizeof text, format, arguments) < 0) {
    text[0] = '\0';
  }
  const char *base = file == NULL ? NULL : strrchr(file, '/');
  base = base == NULL ? file : base + 1;
  pthread_mutex_lock(&mutex);
  if (count == LINES) {
    lost++;
  } else {
    LogLine *place = &lines[(first + count++) % LINES];
    place->level = level;
    place->line = line;
    memcpy(place->label, labels[slot], LABEL_BYTES);
    snprintf(place->file, FILE_BYTES, "%s", base == NULL ? "" : base);
    memcpy(place->text, text, TEXT_BYTES);
    pthread_cond_signal(&arrived);
  }
  pthread_mutex_unlock(&mutex);
}

/*
 * The arguments of NCCL's logger do not identify the plugin, so each plugin gets its own function.
 */
#define LOGGER(slot)                                                                              \
  static void log_##slot(int level, unsigned long flags, const char *file, int line,              \
                         const char *format, ...) {                                               \
    (void)flags;                                                                                  \
    va_list arguments;                                                                            \
    va_start(arguments, format);                                                                  \
    store(slot, level, file, line, format, arguments);                                            \
    va_end(arguments);                                                                            \
  }

LOGGER(0)
LOGGER(1)
LOGGER(2)
LOGGER(3)
LOGGER(4)
LOGGER(5)
LOGGER(6)
LOGGER(7)
LOGGER(8)
LOGGER(9)
LOGGER(10)
LOGGER(11)
LOGGER(12)
LOGGER(13)
LOGGER(14)
LOGGER(15)

static const NetLogger loggers[SLOTS] = {log_0,  log_1,  log_2,  log_3, log_4,  log_5,
                                         log_6,  log_7,  log_8,  log_9, log_10, log_11,
                                         log_12, log_13, log_14, log_15};

NetLogger fluxccl_net_take_logger(const char *label, int level, int *slot) {
  pthread_once(&arrived_once, prepare);
  NetLogger logger = NULL;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < SLOTS && logger == NULL; i++) {
    if (!taken[i]) {
      taken[i] = 1;
      snprintf(labels[i], LABEL_BYTES, "%s", label);
      atomic_store_explicit(&levels[i], level, memory_order_relaxed);
      *slot = i;
      logger = loggers[i];
    }
  }
  pthread_mutex_unlock(&mutex);
  return logger;
}

void fluxccl_net_return_logger(int slot) {
  pthread_mutex_lock(&mutex);
  taken[slot] = 0;
  pthread_mutex_unlock(&mutex);
}

static void wait_for_a_line(int timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += timeout_ms / 1000;
  until.tv_nsec += (long)(timeout_ms % 1000) * 1000000L;
  if (until.tv_nsec >= 1000000000L) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000L;
  }
  while (count == 0 && lost == 0) {
    if (pthread_cond_timedwait(&arrived, &mutex, &until) == ETIMEDOUT) {
      return;
    }
  }
}

/*
 * Waits for a line, for at most the given time, and takes it. Stores label, file and text into the
 * first three elements of texts, the line number into numbers[0], and the number of lines lost
 * before it into numbers[1]. Returns the line's level, 0 if there are only lost lines, -1 if there
 * was no line.
 */
JNIEXPORT jint JNICALL Java_io_fluxccl_netplugin_vendor_NetPluginCalls_nextLogLine(
    JNIEnv *env, jclass type, jobjectArray texts, jintArray numbers, jint timeout_ms) {
  (void)type;
  pthread_once(&arrived_once, prepare);
  LogLine line;
  memset(&line, 0, sizeof line);
  pthread_mutex_lock(&mutex);
  wait_for_a_line(timeout_ms);
  jint dropped = (jint)lost;
  int found = count > 0;
  lost = 0;
  if (found) {
    line = lines[first];
    first = (first + 1) % LINES;
    count--;
  }
  pthread_mutex_unlock(&mutex);
  if (!found && dropped == 0) {
    return -1;
  }
  jint values[2] = {line.line, dropped};
  (*env)->SetIntArrayRegion(env, numbers, 0, 2, values);
  const char *parts[3] = {line.label, line.file, line.text};
  for (int i = 0; i < 3; i++) {
    jbyteArray bytes = fluxccl_new_bytes(env, parts[i], strlen(parts[i]));
    if (bytes == NULL) {
      return -1;
    }
    (*env)->SetObjectArrayElement(env, texts, i, bytes);
  }
  return found ? line.level : 0;
}
