// SPDX-License-Identifier: Apache-2.0
// NCCL's calls, independent of the interface version, to the static methods of NetPluginExport, where
// pointers are numbers.
#include "ncclnet.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ENV_OR_FAIL(env)                                                                                              \
  JNIEnv *env = jvm_env();                                                                                             \
  if (!env) {                                                                                                          \
    return RESULT_INTERNAL_ERROR;                                                                                      \
  }

static jlong number(const void *pointer) {
  return (jlong)(uintptr_t)pointer;
}

// Converts a result of Java to *out: an object's number, or 0. A result of minus a code stores NULL.
static int object(JNIEnv *env, jlong given, void **out) {
  long result = jvm_result(env, given);
  *out = result > 0 ? (void *)(uintptr_t)result : NULL;
  return result < 0 ? (int)-result : RESULT_SUCCESS;
}

static int plain(JNIEnv *env, jint given) {
  long result = jvm_result(env, given);
  return result < 0 ? (int)-result : RESULT_SUCCESS;
}

int net_init(logger target) {
  log_to(target);
  int result = jvm_start();
  if (result != RESULT_SUCCESS) {
    return result;
  }
  ENV_OR_FAIL(env);
  return plain(env, (*env)->CallStaticIntMethod(env, java.class, java.open));
}

int net_finalize(void) {
  if (!jvm_is_started()) {
    // After an init that failed there is nothing to end; some releases of NCCL call this nevertheless.
    return RESULT_SUCCESS;
  }
  ENV_OR_FAIL(env);
  return plain(env, (*env)->CallStaticIntMethod(env, java.class, java.release));
}

int net_devices(int *count) {
  ENV_OR_FAIL(env);
  // Adds a user and removes it again: the network is already open.
  long result = jvm_result(env, (*env)->CallStaticIntMethod(env, java.class, java.open));
  if (result < 0) {
    return (int)-result;
  }
  *count = (int)result;
  return plain(env, (*env)->CallStaticIntMethod(env, java.class, java.release));
}

const struct fluxccl_properties *net_properties(int device, int *result) {
  enum { MOST_DEVICES = 64 };
  // NCCL keeps the names, and some versions do not specify for how long.
  static struct fluxccl_properties *known[MOST_DEVICES];
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  JNIEnv *env = jvm_env();
  *result = RESULT_INTERNAL_ERROR;
  if (!env || device < 0 || device >= MOST_DEVICES) {
    return NULL;
  }
  struct fluxccl_properties now;
  *result = plain(env, (*env)->CallStaticIntMethod(env, java.class, java.properties, (jint)device, number(&now)));
  if (*result != RESULT_SUCCESS) {
    return NULL;
  }
  pthread_mutex_lock(&lock);
  struct fluxccl_properties *kept = known[device];
  if (!kept || memcmp(kept, &now, sizeof now) != 0) {
    kept = malloc(sizeof now);
    if (kept) {
      *kept = now;
      known[device] = kept;
    } else {
      *result = RESULT_SYSTEM_ERROR;
    }
  }
  pthread_mutex_unlock(&lock);
  return kept;
}

int net_listen(int device, void *handle, void **listener) {
  ENV_OR_FAIL(env);
  return object(env, (*env)->CallStaticLongMethod(env, java.class, java.listen, (jint)device, number(handle)), listener);
}

int net_connect(int device, void *handle, void **comm) {
  ENV_OR_FAIL(env);
  return object(env, (*env)->CallStaticLongMethod(env, java.class, java.connect, (jint)device, number(handle)), comm);
}

int net_accept(void *listener, void **comm) {
  ENV_OR_FAIL(env);
  return object(env, (*env)->CallStaticLongMethod(env, java.class, java.accept, number(listener)), comm);
}

int net_register(void *comm, void *data, size_t size, int type, void **memory) {
  ENV_OR_FAIL(env);
  return object(env,
                (*env)->CallStaticLongMethod(env, java.class, java.register_memory, number(comm), number(data), (jlong)size,
                                             (jint)type),
                memory);
}

int net_register_dma_buf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **memory) {
  ENV_OR_FAIL(env);
  return object(env,
                (*env)->CallStaticLongMethod(env, java.class, java.register_dma_buf, number(comm), number(data), (jlong)size,
                                             (jint)type, (jlong)offset, (jint)fd),
                memory);
}

int net_deregister(void *comm, void *memory) {
  ENV_OR_FAIL(env);
  return plain(env, (*env)->CallStaticIntMethod(env, java.class, java.deregister, number(comm), number(memory)));
}

int net_isend(void *comm, void *data, size_t size, int tag, void *memory, void **request) {
  *request = NULL;
  ENV_OR_FAIL(env);
  return object(env,
                (*env)->CallStaticLongMethod(env, java.class, java.isend, number(comm), number(data), (jlong)size, (jint)tag,
                                             number(memory)),
                request);
}

int net_irecv(void *comm, int n, void **data, const void *sizes, bool wide, int *tags, void **memories, void **request) {
  *request = NULL;
  ENV_OR_FAIL(env);
  return object(env,
                (*env)->CallStaticLongMethod(env, java.class, java.irecv, number(comm), (jint)n, number(data), number(sizes),
                                             (jboolean)wide, number(tags), number(memories)),
                request);
}

int net_iflush(void *comm, int n, void **data, const int *sizes, void **memories, void **request) {
  *request = NULL;
  ENV_OR_FAIL(env);
  return object(env,
                (*env)->CallStaticLongMethod(env, java.class, java.iflush, number(comm), (jint)n, number(data), number(sizes),
                                             number(memories)),
                request);
}

int net_test(void *request, int *done, int *sizes) {
  *done = 0;
  ENV_OR_FAIL(env);
  long result = jvm_result(env, (*env)->CallStaticIntMethod(env, java.class, java.test, number(request), number(sizes)));
  if (result < 0) {
    return (int)-result;
  }
  *done = result == 1;
  return RESULT_SUCCESS;
}

int net_close(void *comm) {
  ENV_OR_FAIL(env);
  return plain(env, (*env)->CallStaticIntMethod(env, java.class, java.close, number(comm)));
}

int net_close_listen(void *listener) {
  ENV_OR_FAIL(env);
  return plain(env, (*env)->CallStaticIntMethod(env, java.class, java.close_listen, number(listener)));
}
