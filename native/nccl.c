// SPDX-License-Identifier: Apache-2.0
/* NVIDIA's collectives (NCCL), for comparisons. The library is opened by a path that Java found. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jni_support.h"

enum { NCCL_SUCCESS = 0, NCCL_SYSTEM_ERROR = 2, UNIQUE_ID_BYTES = 128, COLL_SYMMETRIC = 1 };

typedef struct {
  char internal[UNIQUE_ID_BYTES];
} UniqueId;

typedef void *Comm;
typedef void *Stream;

typedef struct {
  void *library;
  int (*getVersion)(int *version);
  const char *(*getErrorString)(int result);
  int (*getUniqueId)(UniqueId *id);
  int (*commInitRank)(Comm *comm, int nRanks, UniqueId id, int rank);
  int (*commDestroy)(Comm comm);
  int (*commAbort)(Comm comm);
  int (*commGetAsyncError)(Comm comm, int *result);
  int (*groupStart)(void);
  int (*groupEnd)(void);
  int (*allReduce)(const void *in, void *out, size_t count, int type, int op, Comm, Stream);
  int (*allGather)(const void *in, void *out, size_t count, int type, Comm, Stream);
  int (*reduceScatter)(const void *in, void *out, size_t count, int type, int op, Comm, Stream);
  int (*broadcast)(const void *in, void *out, size_t count, int type, int root, Comm, Stream);
  int (*reduce)(const void *in, void *out, size_t count, int type, int op, int root, Comm, Stream);
  int (*send)(const void *in, size_t count, int type, int peer, Comm, Stream);
  int (*recv)(void *out, size_t count, int type, int peer, Comm, Stream);
  /* From 2.27 on; otherwise NULL. */
  int (*memAlloc)(void **memory, size_t bytes);
  int (*memFree)(void *memory);
  int (*commWindowRegister)(Comm, void *memory, size_t bytes, void **window, int flags);
  int (*commWindowDeregister)(Comm, void *window);
} Nccl;

static const Nccl *nccl_of(jlong library) { return (const Nccl *)(intptr_t)library; }

static void *pointer_of(jlong address) { return (void *)(intptr_t)address; }

static int find_functions(Nccl *nccl) {
  struct {
    void *target;
    const char *name;
    int optional;
  } wanted[] = {
      {&nccl->getVersion, "ncclGetVersion", 0},
      {&nccl->getErrorString, "ncclGetErrorString", 0},
      {&nccl->getUniqueId, "ncclGetUniqueId", 0},
      {&nccl->commInitRank, "ncclCommInitRank", 0},
      {&nccl->commDestroy, "ncclCommDestroy", 0},
      {&nccl->commAbort, "ncclCommAbort", 0},
      {&nccl->commGetAsyncError, "ncclCommGetAsyncError", 0},
      {&nccl->groupStart, "ncclGroupStart", 0},
      {&nccl->groupEnd, "ncclGroupEnd", 0},
      {&nccl->allReduce, "ncclAllReduce", 0},
      {&nccl->allGather, "ncclAllGather", 0},
      {&nccl->reduceScatter, "ncclReduceScatter", 0},
      {&nccl->broadcast, "ncclBroadcast", 0},
      {&nccl->reduce, "ncclReduce", 0},
      {&nccl->send, "ncclSend", 0},
      {&nccl->recv, "ncclRecv", 0},
      {&nccl->memAlloc, "ncclMemAlloc", 1},
      {&nccl->memFree, "ncclMemFree", 1},
      {&nccl->commWindowRegister, "ncclCommWindowRegister", 1},
      {&nccl->commWindowDeregister, "ncclCommWindowDeregister", 1},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void *function = dlsym(nccl->library, wanted[i].name);
    if (function == NULL && !wanted[i].optional) {
      return 0;
    }
    memcpy(wanted[i].target, &function, sizeof function);
  }
  return 1;
}

/*
 * Opens the library for the life of the process; throws UnsatisfiedLinkError with the loader's
 * message.
 */
JNIEXPORT jlong JNICALL Java_io_fluxccl_cli_NcclCalls_open(JNIEnv *env, jclass type,
                                                           jbyteArray path) {
  (void)type;
  char *text = fluxccl_copy_bytes(env, path);
  if (text == NULL) {
    return 0;
  }
  Nccl *nccl = calloc(1, sizeof *nccl);
  if (nccl == NULL) {
    free(text);
    fluxccl_throw_out_of_memory(env);
    return 0;
  }
  nccl->library = dlopen(text, RTLD_NOW | RTLD_LOCAL);
  free(text);
  if (nccl->library != NULL && find_functions(nccl)) {
    return (jlong)(intptr_t)nccl;
  }
  const char *reason = dlerror();
  jclass error = (*env)->FindClass(env, "java/lang/UnsatisfiedLinkError");
  if (error != NULL) {
    (*env)->ThrowNew(env, error, reason == NULL ? "unknown" : reason);
  }
  if (nccl->library != NULL) {
    dlclose(nccl->library);
  }
  free(nccl);
  return 0;
}

/* Returns the path of the library, or an empty array. */
JNIEXPORT jbyteArray JNICALL Java_io_fluxccl_cli_NcclCalls_path(JNIEnv *env, jclass type,
                                                                jlong library) {
  (void)type;
  Dl_info info;
  void *function;
  memcpy(&function, &nccl_of(library)->getVersion, sizeof function);
  if (dladdr(function, &info) == 0 || info.dli_fname == NULL) {
    return fluxccl_new_bytes(env, "", 0);
  }
  return fluxccl_new_bytes(env, info.dli_fname, strlen(info.dli_fname));
}

/* Stores the version in NCCL's form, 22809 for 2.28.9, into result[0]. */
JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_version(JNIEnv *env, jclass type,
                                                             jlong library, jintArray result) {
  (void)type;
  int version = 0;
  int status = nccl_of(library)->getVersion(&version);
  put_int(env, result, version);
  return status;
}

JNIEXPORT jbyteArray JNICALL Java_io_fluxccl_cli_NcclCalls_describe(JNIEnv *env, jclass type,
                                                                    jlong library, jint status) {
  (void)type;
  const char *text = nccl_of(library)->getErrorString(status);
  return fluxccl_new_bytes(env, text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
}

/* Stores a new job's id into the array, which has UNIQUE_ID_BYTES. */
JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_uniqueId(JNIEnv *env, jclass type,
                                                              jlong library, jbyteArray result) {
  (void)type;
  UniqueId id;
  memset(&id, 0, sizeof id);
  int status = nccl_of(library)->getUniqueId(&id);
  (*env)->SetByteArrayRegion(env, result, 0, UNIQUE_ID_BYTES, (const jbyte *)id.internal);
  return status;
}

/*
 * Joins the job with the thread's current GPU and waits for the other ranks. Stores the
 * communicator into result[0].
 */
JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_init(JNIEnv *env, jclass type, jlong library,
                                                          jbyteArray id_bytes, jint n_ranks,
                                                          jint rank, jlongArray result) {
  (void)type;
  UniqueId id;
  (*env)->GetByteArrayRegion(env, id_bytes, 0, UNIQUE_ID_BYTES, (jbyte *)id.internal);
  if ((*env)->ExceptionCheck(env)) {
    return NCCL_SYSTEM_ERROR;
  }
  Comm comm = NULL;
  int status = nccl_of(library)->commInitRank(&comm, n_ranks, id, rank);
  put_long(env, result, (jlong)(intptr_t)comm);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_destroy(JNIEnv *env, jclass type,
                                                             jlong library, jlong comm) {
  (void)env;
  (void)type;
  return nccl_of(library)->commDestroy(pointer_of(comm));
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_abort(JNIEnv *env, jclass type, jlong library,
                                                           jlong comm) {
  (void)env;
  (void)type;
  return nccl_of(library)->commAbort(pointer_of(comm));
}

/* Returns the asynchronous error of a communicator. */
JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_asyncError(JNIEnv *env, jclass type,
                                                                jlong library, jlong comm) {
  (void)env;
  (void)type;
  int result = NCCL_SUCCESS;
  int status = nccl_of(library)->commGetAsyncError(pointer_of(comm), &result);
  return status == NCCL_SUCCESS ? result : status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_allReduce(JNIEnv *env, jclass type,
                                                               jlong library, jlong in, jlong out,
                                                               jlong count, jint data_type, jint op,
                                                               jlong comm, jlong stream) {
  (void)env;
  (void)type;
  return nccl_of(library)->allReduce(pointer_of(in), pointer_of(out), (size_t)count, data_type, op,
                                     pointer_of(comm), pointer_of(stream));
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_allGather(JNIEnv *env, jclass type,
                                                               jlong library, jlong in, jlong out,
                                                               jlong count, jint data_type,
                                                               jlong comm, jlong stream) {
  (void)env;
  (void)type;
  return nccl_of(library)->allGather(pointer_of(in), pointer_of(out), (size_t)count, data_type,
                                     pointer_of(comm), pointer_of(stream));
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_reduceScatter(
    JNIEnv *env, jclass type, jlong library, jlong in, jlong out, jlong count, jint data_type,
    jint op, jlong comm, jlong stream) {
  (void)env;
  (void)type;
  return nccl_of(library)->reduceScatter(pointer_of(in), pointer_of(out), (size_t)count, data_type,
                                         op, pointer_of(comm), pointer_of(stream));
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_broadcast(JNIEnv *env, jclass type,
                                                               jlong library, jlong in, jlong out,
                                                               jlong count, jint data_type,
                                                               jint root, jlong comm,
                                                               jlong stream) {
  (void)env;
  (void)type;
  return nccl_of(library)->broadcast(pointer_of(in), pointer_of(out), (size_t)count, data_type,
                                     root, pointer_of(comm), pointer_of(stream));
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_reduce(JNIEnv *env, jclass type, jlong library,
                                                            jlong in, jlong out, jlong count,
                                                            jint data_type, jint op, jint root,
                                                            jlong comm, jlong stream) {
  (void)env;
  (void)type;
  return nccl_of(library)->reduce(pointer_of(in), pointer_of(out), (size_t)count, data_type, op,
                                  root, pointer_of(comm), pointer_of(stream));
}

/*
 * Sends one part to each peer and receives one from each, as one group. parts has four numbers a
 * peer: offset in bytes and elements to send, offset in bytes and elements to receive; parts of no
 * elements are left out.
 */
JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_exchange(JNIEnv *env, jclass type,
                                                              jlong library, jlong in, jlong out,
                                                              jlongArray parts, jint data_type,
                                                              jlong comm, jlong stream) {
  (void)type;
  const Nccl *nccl = nccl_of(library);
  jsize length = (*env)->GetArrayLength(env, parts);
  jlong *numbers = malloc(((size_t)length + 1) * sizeof *numbers);
  if (numbers == NULL) {
    fluxccl_throw_out_of_memory(env);
    return NCCL_SYSTEM_ERROR;
  }
  (*env)->GetLongArrayRegion(env, parts, 0, length, numbers);
  int status = nccl->groupStart();
  if (status == NCCL_SUCCESS) {
    for (jsize peer = 0; peer < length / 4 && status == NCCL_SUCCESS; peer++) {
      const jlong *part = numbers + 4 * peer;
      if (part[1] > 0) {
        status = nccl->send((const char *)pointer_of(in) + part[0], (size_t)part[1], data_type,
                            peer, pointer_of(comm), pointer_of(stream));
      }
      if (part[3] > 0 && status == NCCL_SUCCESS) {
        status = nccl->recv((char *)pointer_of(out) + part[2], (size_t)part[3], data_type, peer,
                            pointer_of(comm), pointer_of(stream));
      }
    }
    int ended = nccl->groupEnd();
    status = status == NCCL_SUCCESS ? ended : status;
  }
  free(numbers);
  return status;
}

JNIEXPORT jboolean JNICALL Java_io_fluxccl_cli_NcclCalls_hasWindows(JNIEnv *env, jclass type,
                                                                    jlong library) {
  (void)env;
  (void)type;
  const Nccl *nccl = nccl_of(library);
  return nccl->memAlloc != NULL && nccl->memFree != NULL && nccl->commWindowRegister != NULL &&
         nccl->commWindowDeregister != NULL;
}

/* Stores the address of memory that can be a window into result[0]. */
JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_allocate(JNIEnv *env, jclass type,
                                                              jlong library, jlong bytes,
                                                              jlongArray result) {
  (void)type;
  void *memory = NULL;
  int status = nccl_of(library)->memAlloc(&memory, (size_t)bytes);
  put_long(env, result, (jlong)(intptr_t)memory);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_free(JNIEnv *env, jclass type, jlong library,
                                                          jlong address) {
  (void)env;
  (void)type;
  return nccl_of(library)->memFree(pointer_of(address));
}

/* Waits for all ranks. Stores the window into result[0]; 0 if the ranks cannot have one. */
JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_register(JNIEnv *env, jclass type,
                                                              jlong library, jlong comm,
                                                              jlong address, jlong bytes,
                                                              jlongArray result) {
  (void)type;
  void *window = NULL;
  int status = nccl_of(library)->commWindowRegister(pointer_of(comm), pointer_of(address),
                                                    (size_t)bytes, &window, COLL_SYMMETRIC);
  put_long(env, result, (jlong)(intptr_t)window);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_cli_NcclCalls_deregister(JNIEnv *env, jclass type,
                                                                jlong library, jlong comm,
                                                                jlong window) {
  (void)env;
  (void)type;
  return nccl_of(library)->commWindowDeregister(pointer_of(comm), pointer_of(window));
}
