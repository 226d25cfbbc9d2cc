// SPDX-License-Identifier: Apache-2.0
/* A vendor's collective network, which comes with its network plugin, called from Java. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jni_support.h"
#include "netplugin_abi.h"
#include "netplugin_jni.h"
#include "netplugin_signals.h"

#define CALL(name) JNICALL Java_io_fluxccl_netplugin_vendor_CollNetCalls_##name

typedef int (*CollInit11)(void **context, uint64_t job, NetLogger);
typedef int (*CollConnect)(void *handles[], int n_ranks, int rank, void *listener, void **comm);
typedef int (*CollReduceSupport)(int type, int op, int *supported);
typedef int (*CollReduce6)(void *comm, void *from, void *to, int count, int type, int op,
                           void *from_memory, void *to_memory, void **request);
typedef int (*CollReduce9)(void *comm, void *from, void *to, size_t count, int type, int op,
                           void *from_memory, void *to_memory, void **request);
typedef int (*CollFlush)(void *comm, void *data, int size, void *memory, void **request);

/* The first part of all versions' tables. */
typedef struct {
  const char *name;
  NetFunction init;
  NetDevices devices;
  NetGetProperties getProperties;
  NetFunction listen;
  CollConnect connect;
  CollReduceSupport reduceSupport;
  NetFunction regMr;
  NetRegisterDmaBuf regMrDmaBuf;
  NetDeregister deregMr;
  NetFunction iallreduce;
} CollTable;

/* The part after it; from version 8 on, it follows iallgather and ireducescatter. */
typedef struct {
  CollFlush iflush;
  NetTest test;
  NetClose closeColl;
  NetClose closeListen;
} CollTail;

_Static_assert(sizeof(CollTable) + sizeof(CollTail) == 0x78, "table of versions 6 and 7");

typedef struct {
  int version;
  int slot;
  int initialized;
  void *context;
  CollTable coll;
  CollTail tail;
  NetFinalize finalize;
} Coll;

static Coll *coll_of(jlong coll) { return (Coll *)(intptr_t)coll; }

static void read_table(Coll *coll, const char *table) {
  size_t at = sizeof(CollTable) + (coll->version >= 8 ? 2 * sizeof(void *) : 0);
  memcpy(&coll->coll, table, sizeof(CollTable));
  memcpy(&coll->tail, table + at, sizeof(CollTail));
  if (coll->version >= 11) {
    /* After makeVDevice. */
    memcpy(&coll->finalize, table + at + sizeof(CollTail) + sizeof(void *),
           sizeof coll->finalize);
  }
}

/*
 * Returns the collective network of that version in a library, to be freed; 0 if the library has
 * none.
 */
JNIEXPORT jlong CALL(find)(JNIEnv *env, jclass type, jlong library, jint version) {
  (void)type;
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclCollNetPlugin_v%d", (int)version);
  const void *table = dlsym(pointer_of(library), symbol);
  if (table == NULL || version < NET_OLDEST_VERSION || version > NET_NEWEST_VERSION) {
    return 0;
  }
  Coll *coll = calloc(1, sizeof *coll);
  if (coll == NULL) {
    fluxccl_throw_out_of_memory(env);
    return 0;
  }
  coll->version = version;
  coll->slot = -1;
  read_table(coll, table);
  if (coll->coll.name == NULL || coll->coll.init == NULL || coll->coll.devices == NULL) {
    free(coll);
    return 0;
  }
  return (jlong)(intptr_t)coll;
}

JNIEXPORT jbyteArray CALL(name)(JNIEnv *env, jclass type, jlong coll) {
  (void)type;
  const char *name = coll_of(coll)->coll.name;
  return fluxccl_new_bytes(env, name, strlen(name));
}

/* As a network plugin's. */
JNIEXPORT jint CALL(init)(JNIEnv *env, jclass type, jlong handle, jint log_level, jlong job) {
  (void)env;
  (void)type;
  Coll *coll = coll_of(handle);
  NetLogger logger = fluxccl_net_take_logger(coll->coll.name, log_level, &coll->slot);
  if (logger == NULL) {
    return -1;
  }
  SavedSignals signals;
  fluxccl_net_save_signals(&signals);
  int result = coll->version >= 11
                   ? ((CollInit11)coll->coll.init)(&coll->context, (uint64_t)job, logger)
                   : ((NetInit6)coll->coll.init)(logger);
  fluxccl_net_restore_signals(&signals);
  coll->initialized = result == NET_SUCCESS;
  return result_of(result);
}

JNIEXPORT jint CALL(finish)(JNIEnv *env, jclass type, jlong handle) {
  (void)env;
  (void)type;
  Coll *coll = coll_of(handle);
  int result = NET_SUCCESS;
  if (coll->initialized && coll->finalize != NULL) {
    result = coll->finalize(coll->context);
  }
  if (coll->slot >= 0) {
    fluxccl_net_return_logger(coll->slot);
  }
  free(coll);
  return result_of(result);
}

/*
 * Returns the number of devices, or an error if there is none: then the other functions may be
 * missing.
 */
JNIEXPORT jint CALL(devices)(JNIEnv *env, jclass type, jlong handle, jintArray count) {
  (void)type;
  const Coll *coll = coll_of(handle);
  int found = 0;
  int result = coll->coll.devices(&found);
  int complete = coll->coll.getProperties != NULL && coll->coll.listen != NULL &&
                 coll->coll.connect != NULL && coll->coll.reduceSupport != NULL &&
                 coll->coll.regMr != NULL && coll->coll.deregMr != NULL &&
                 coll->coll.iallreduce != NULL && coll->tail.test != NULL &&
                 coll->tail.closeColl != NULL && coll->tail.closeListen != NULL;
  if (result == NET_SUCCESS && found > 0 && !complete) {
    return NET_INTERNAL_ERROR;
  }
  put_int(env, count, found);
  return result_of(result);
}

JNIEXPORT jint CALL(properties)(JNIEnv *env, jclass type, jlong handle, jint device,
                                jobjectArray texts, jlongArray numbers) {
  (void)type;
  const Coll *coll = coll_of(handle);
  return fluxccl_net_properties(env, coll->version, coll->coll.getProperties, device, texts,
                                numbers);
}

JNIEXPORT jlong CALL(listen)(JNIEnv *env, jclass type, jlong handle, jint device,
                             jlong net_handle) {
  (void)env;
  (void)type;
  const Coll *coll = coll_of(handle);
  void *comm = NULL;
  int result =
      coll->version >= 11
          ? ((NetListen11)coll->coll.listen)(coll->context, device, pointer_of(net_handle), &comm)
          : ((NetListen6)coll->coll.listen)(device, pointer_of(net_handle), &comm);
  return pointer_or_error(result, comm);
}

/* Joins a group. The handles of its ranks lie one after the other, NET_HANDLE_BYTES each. */
JNIEXPORT jlong CALL(connect)(JNIEnv *env, jclass type, jlong handle, jlong handles,
                              jint n_ranks, jint rank, jlong listener) {
  (void)type;
  void **places = malloc((size_t)n_ranks * sizeof *places);
  if (places == NULL) {
    fluxccl_throw_out_of_memory(env);
    return 0;
  }
  for (jint i = 0; i < n_ranks; i++) {
    places[i] = (char *)pointer_of(handles) + (size_t)i * NET_HANDLE_BYTES;
  }
  void *comm = NULL;
  int result = coll_of(handle)->coll.connect(places, n_ranks, rank, pointer_of(listener), &comm);
  free(places);
  return pointer_or_error(result, comm);
}

/* Returns 1 or 0; a negative result on failure. */
JNIEXPORT jint CALL(reduceSupport)(JNIEnv *env, jclass type, jlong handle, jint data_type,
                                   jint op) {
  (void)env;
  (void)type;
  int supported = 0;
  int result = coll_of(handle)->coll.reduceSupport(data_type, op, &supported);
  return result == NET_SUCCESS ? supported != 0 : -result_of(result);
}

JNIEXPORT jint CALL(register)(JNIEnv *env, jclass type, jlong handle, jlong comm, jlong address,
                              jlong size, jint kind, jlongArray memory) {
  (void)type;
  const Coll *coll = coll_of(handle);
  void *registered = NULL;
  int result =
      coll->version >= 8
          ? ((NetRegister8)coll->coll.regMr)(pointer_of(comm), pointer_of(address), (size_t)size,
                                             kind, &registered)
          : ((NetRegister6)coll->coll.regMr)(pointer_of(comm), pointer_of(address), (int)size,
                                             kind, &registered);
  put_long(env, memory, (jlong)(intptr_t)registered);
  return result_of(result);
}

JNIEXPORT jint CALL(deregister)(JNIEnv *env, jclass type, jlong handle, jlong comm,
                                jlong memory) {
  (void)env;
  (void)type;
  return result_of(coll_of(handle)->coll.deregMr(pointer_of(comm), pointer_of(memory)));
}

/* Returns the request; 0 for not now; a negative result on failure. */
JNIEXPORT jlong CALL(iallreduce)(JNIEnv *env, jclass type, jlong handle, jlong comm, jlong from,
                                 jlong to, jlong count, jint data_type, jint op,
                                 jlong from_memory, jlong to_memory) {
  (void)env;
  (void)type;
  const Coll *coll = coll_of(handle);
  void *request = NULL;
  int result;
  if (coll->version >= 9) {
    result = ((CollReduce9)coll->coll.iallreduce)(
        pointer_of(comm), pointer_of(from), pointer_of(to), (size_t)count, data_type, op,
        pointer_of(from_memory), pointer_of(to_memory), &request);
  } else {
    result = ((CollReduce6)coll->coll.iallreduce)(
        pointer_of(comm), pointer_of(from), pointer_of(to), (int)count, data_type, op,
        pointer_of(from_memory), pointer_of(to_memory), &request);
  }
  return pointer_or_error(result, request);
}

/* As iallreduce; returns 0 if there is nothing to wait for. */
JNIEXPORT jlong CALL(iflush)(JNIEnv *env, jclass type, jlong handle, jlong comm, jlong address,
                             jlong size, jlong memory) {
  (void)env;
  (void)type;
  CollFlush function = coll_of(handle)->tail.iflush;
  void *request = NULL;
  int result = function == NULL ? NET_SUCCESS
                                : function(pointer_of(comm), pointer_of(address), (int)size,
                                           pointer_of(memory), &request);
  return pointer_or_error(result, request);
}

/* Returns 1 if the request is done, 0 if not; a negative result on failure. */
JNIEXPORT jint CALL(test)(JNIEnv *env, jclass type, jlong handle, jlong request) {
  (void)env;
  (void)type;
  int done = 0;
  int size = 0;
  int result = coll_of(handle)->tail.test(pointer_of(request), &done, &size);
  return result == NET_SUCCESS ? done != 0 : -result_of(result);
}

JNIEXPORT jint CALL(closeColl)(JNIEnv *env, jclass type, jlong handle, jlong comm) {
  (void)env;
  (void)type;
  return result_of(coll_of(handle)->tail.closeColl(pointer_of(comm)));
}

JNIEXPORT jint CALL(closeListen)(JNIEnv *env, jclass type, jlong handle, jlong comm) {
  (void)env;
  (void)type;
  return result_of(coll_of(handle)->tail.closeListen(pointer_of(comm)));
}
