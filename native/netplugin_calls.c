// SPDX-License-Identifier: Apache-2.0
/* A vendor's network plugin, called from Java. Objects of the plugin are numbers there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jni_support.h"
#include "netplugin_abi.h"
#include "netplugin_jni.h"
#include "netplugin_signals.h"

#define CALL(name) JNICALL Java_io_fluxccl_netplugin_vendor_NetPluginCalls_##name

typedef struct {
  int version;
  int slot;
  int initialized;
  void *context;
  NetTable net;
} Plugin;

static Plugin *plugin_of(jlong plugin) { return (Plugin *)(intptr_t)plugin; }

static size_t table_bytes(int version) {
  if (version < 7) {
    return offsetof(NetTable, getDeviceMr);
  }
  if (version < 9) {
    return offsetof(NetTable, makeVDevice);
  }
  return version < 11 ? offsetof(NetTable, finalize) : sizeof(NetTable);
}

static int is_complete(const NetTable *net) {
  return net->name != NULL && net->init != NULL && net->devices != NULL &&
         net->getProperties != NULL && net->listen != NULL && net->connect != NULL &&
         net->accept != NULL && net->regMr != NULL && net->deregMr != NULL && net->isend != NULL &&
         net->irecv != NULL && net->test != NULL && net->closeSend != NULL &&
         net->closeRecv != NULL && net->closeListen != NULL;
}

/* Returns the plugin of that version in a library, to be freed; 0 if the library has none. */
JNIEXPORT jlong CALL(find)(JNIEnv *env, jclass type, jlong library, jint version) {
  (void)type;
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", (int)version);
  const void *table = dlsym(pointer_of(library), symbol);
  if (table == NULL || version < NET_OLDEST_VERSION || version > NET_NEWEST_VERSION) {
    return 0;
  }
  Plugin *plugin = calloc(1, sizeof *plugin);
  if (plugin == NULL) {
    fluxccl_throw_out_of_memory(env);
    return 0;
  }
  plugin->version = version;
  plugin->slot = -1;
  memcpy(&plugin->net, table, table_bytes(version));
  if (!is_complete(&plugin->net)) {
    free(plugin);
    return 0;
  }
  return (jlong)(intptr_t)plugin;
}

JNIEXPORT jbyteArray CALL(name)(JNIEnv *env, jclass type, jlong plugin) {
  (void)type;
  const char *name = plugin_of(plugin)->net.name;
  return fluxccl_new_bytes(env, name, strlen(name));
}

/* There is no profiler of NCCL here: events are accepted and discarded. */
static int ignore_event(void **event, int type, void *parent, int64_t id, void *data) {
  (void)event;
  (void)type;
  (void)parent;
  (void)id;
  (void)data;
  return NET_SUCCESS;
}

static int call_init(Plugin *plugin, NetLogger logger, uint64_t job) {
  NetConfig config = {.trafficClass = -1};
  if (plugin->version >= 11) {
    return ((NetInit11)plugin->net.init)(&plugin->context, job, &config, logger, ignore_event);
  }
  if (plugin->version == 10) {
    return ((NetInit10)plugin->net.init)(logger, ignore_event);
  }
  return ((NetInit6)plugin->net.init)(logger);
}

/*
 * Calls the plugin's init; returns -1 if too many plugins are in use. Log lines above the level are
 * dropped.
 */
JNIEXPORT jint CALL(init)(JNIEnv *env, jclass type, jlong handle, jint log_level, jlong job) {
  (void)env;
  (void)type;
  Plugin *plugin = plugin_of(handle);
  NetLogger logger = fluxccl_net_take_logger(plugin->net.name, log_level, &plugin->slot);
  if (logger == NULL) {
    return -1;
  }
  SavedSignals signals;
  fluxccl_net_save_signals(&signals);
  int result = call_init(plugin, logger, (uint64_t)job);
  fluxccl_net_restore_signals(&signals);
  plugin->initialized = result == NET_SUCCESS;
  return result_of(result);
}

/* Finalizes the plugin if it was initialized, and frees it. */
JNIEXPORT jint CALL(finish)(JNIEnv *env, jclass type, jlong handle) {
  (void)env;
  (void)type;
  Plugin *plugin = plugin_of(handle);
  int result = NET_SUCCESS;
  if (plugin->initialized && plugin->net.finalize != NULL) {
    result = plugin->net.finalize(plugin->context);
  }
  if (plugin->slot >= 0) {
    fluxccl_net_return_logger(plugin->slot);
  }
  free(plugin);
  return result_of(result);
}

JNIEXPORT jint CALL(devices)(JNIEnv *env, jclass type, jlong plugin, jintArray count) {
  (void)type;
  int found = 0;
  int result = plugin_of(plugin)->net.devices(&found);
  put_int(env, count, found);
  return result_of(result);
}

/* Stores name and path, which may be null, into texts, and ten numbers. */
JNIEXPORT jint CALL(properties)(JNIEnv *env, jclass type, jlong handle, jint device,
                                jobjectArray texts, jlongArray numbers) {
  (void)type;
  const Plugin *plugin = plugin_of(handle);
  return fluxccl_net_properties(env, plugin->version, plugin->net.getProperties, device, texts,
                                numbers);
}

/* Returns a listener and stores its handle into 128 bytes; returns a negative result on failure. */
JNIEXPORT jlong CALL(listen)(JNIEnv *env, jclass type, jlong handle, jint device,
                             jlong net_handle) {
  (void)env;
  (void)type;
  Plugin *plugin = plugin_of(handle);
  void *comm = NULL;
  int result =
      plugin->version >= 11
          ? ((NetListen11)plugin->net.listen)(plugin->context, device, pointer_of(net_handle),
                                              &comm)
          : ((NetListen6)plugin->net.listen)(device, pointer_of(net_handle), &comm);
  return pointer_or_error(result, comm);
}

/* Returns a sender; 0 for not yet; a negative result on failure. */
JNIEXPORT jlong CALL(connect)(JNIEnv *env, jclass type, jlong handle, jint device,
                              jlong net_handle) {
  (void)env;
  (void)type;
  Plugin *plugin = plugin_of(handle);
  NetConfig config = {.trafficClass = -1};
  void *comm = NULL;
  /* Null: no offload to a device is requested. */
  void *device_comm = NULL;
  void *peer = pointer_of(net_handle);
  int result;
  if (plugin->version >= 11) {
    result = ((NetConnect11)plugin->net.connect)(plugin->context, device, peer, &comm,
                                                 &device_comm);
  } else if (plugin->version == 10) {
    result = ((NetConnect10)plugin->net.connect)(device, &config, peer, &comm, &device_comm);
  } else if (plugin->version >= 7) {
    result = ((NetConnect7)plugin->net.connect)(device, peer, &comm, &device_comm);
  } else {
    result = ((NetConnect6)plugin->net.connect)(device, peer, &comm);
  }
  return pointer_or_error(result, comm);
}

/* Returns a receiver; 0 for not yet; a negative result on failure. */
JNIEXPORT jlong CALL(accept)(JNIEnv *env, jclass type, jlong handle, jlong listener) {
  (void)env;
  (void)type;
  Plugin *plugin = plugin_of(handle);
  void *comm = NULL;
  void *device_comm = NULL;
  int result =
      plugin->version >= 7
          ? ((NetAccept7)plugin->net.accept)(pointer_of(listener), &comm, &device_comm)
          : ((NetAccept6)plugin->net.accept)(pointer_of(listener), &comm);
  return pointer_or_error(result, comm);
}

/* Stores the registration, which may be 0, into memory[0]. */
JNIEXPORT jint CALL(register)(JNIEnv *env, jclass type, jlong handle, jlong comm, jlong address,
                              jlong size, jint kind, jlongArray memory) {
  (void)type;
  Plugin *plugin = plugin_of(handle);
  void *registered = NULL;
  int result =
      plugin->version >= 8
          ? ((NetRegister8)plugin->net.regMr)(pointer_of(comm), pointer_of(address), (size_t)size,
                                              kind, &registered)
          : ((NetRegister6)plugin->net.regMr)(pointer_of(comm), pointer_of(address), (int)size,
                                              kind, &registered);
  put_long(env, memory, (jlong)(intptr_t)registered);
  return result_of(result);
}

JNIEXPORT jint CALL(registerDmaBuf)(JNIEnv *env, jclass type, jlong plugin, jlong comm,
                                    jlong address, jlong size, jint kind, jlong offset,
                                    jint descriptor, jlongArray memory) {
  (void)type;
  NetRegisterDmaBuf function = plugin_of(plugin)->net.regMrDmaBuf;
  if (function == NULL) {
    return NET_INTERNAL_ERROR;
  }
  void *registered = NULL;
  int result = function(pointer_of(comm), pointer_of(address), (size_t)size, kind,
                        (uint64_t)offset, descriptor, &registered);
  put_long(env, memory, (jlong)(intptr_t)registered);
  return result_of(result);
}

JNIEXPORT jint CALL(deregister)(JNIEnv *env, jclass type, jlong plugin, jlong comm,
                                jlong memory) {
  (void)env;
  (void)type;
  return result_of(plugin_of(plugin)->net.deregMr(pointer_of(comm), pointer_of(memory)));
}

/* Returns the request; 0 for not now; a negative result on failure. */
JNIEXPORT jlong CALL(isend)(JNIEnv *env, jclass type, jlong handle, jlong comm, jlong address,
                            jlong size, jint tag, jlong memory) {
  (void)env;
  (void)type;
  const Plugin *plugin = plugin_of(handle);
  void *request = NULL;
  int result;
  if (plugin->version >= 10) {
    result = ((NetSend10)plugin->net.isend)(pointer_of(comm), pointer_of(address), (size_t)size,
                                            tag, pointer_of(memory), NULL, &request);
  } else if (plugin->version == 9) {
    result = ((NetSend9)plugin->net.isend)(pointer_of(comm), pointer_of(address), (size_t)size,
                                           tag, pointer_of(memory), &request);
  } else {
    result = ((NetSend6)plugin->net.isend)(pointer_of(comm), pointer_of(address), (int)size, tag,
                                           pointer_of(memory), &request);
  }
  return pointer_or_error(result, request);
}

static jlong receive(const Plugin *plugin, void *comm, int n, void **data, size_t *sizes,
                     int *tags, void **memories) {
  void *request = NULL;
  int result;
  if (plugin->version >= 10) {
    void *profiles[NET_MAX_GROUP] = {NULL};
    result = ((NetReceive10)plugin->net.irecv)(comm, n, data, sizes, tags, memories, profiles,
                                               &request);
  } else if (plugin->version == 9) {
    result = ((NetReceive9)plugin->net.irecv)(comm, n, data, sizes, tags, memories, &request);
  } else {
    int small_sizes[NET_MAX_GROUP];
    for (int i = 0; i < n; i++) {
      small_sizes[i] = (int)sizes[i];
    }
    result = ((NetReceive6)plugin->net.irecv)(comm, n, data, small_sizes, tags, memories,
                                              &request);
  }
  return pointer_or_error(result, request);
}

/* As isend. */
JNIEXPORT jlong CALL(irecv)(JNIEnv *env, jclass type, jlong plugin, jlong comm, jlong address,
                            jlong size, jint tag, jlong memory) {
  (void)env;
  (void)type;
  void *data = pointer_of(address);
  size_t bytes = (size_t)size;
  int only_tag = tag;
  void *registered = pointer_of(memory);
  return receive(plugin_of(plugin), pointer_of(comm), 1, &data, &bytes, &only_tag, &registered);
}

/* Up to NET_MAX_GROUP addresses, sizes, registrations and tags, one after the other, 8 bytes each. */
typedef struct {
  int64_t addresses[NET_MAX_GROUP];
  int64_t sizes[NET_MAX_GROUP];
  int64_t memories[NET_MAX_GROUP];
  int64_t tags[NET_MAX_GROUP];
} Group;

_Static_assert(sizeof(Group) == 4 * 8 * 32, "GroupBlock in Java");

/* As isend, for a group that lies at an address. */
JNIEXPORT jlong CALL(irecvGroup)(JNIEnv *env, jclass type, jlong plugin, jlong comm, jint n,
                                 jlong address) {
  (void)env;
  (void)type;
  const Group *group = pointer_of(address);
  void *data[NET_MAX_GROUP];
  size_t sizes[NET_MAX_GROUP];
  int tags[NET_MAX_GROUP];
  void *memories[NET_MAX_GROUP];
  for (int i = 0; i < n; i++) {
    data[i] = pointer_of(group->addresses[i]);
    sizes[i] = (size_t)group->sizes[i];
    tags[i] = (int)group->tags[i];
    memories[i] = pointer_of(group->memories[i]);
  }
  return receive(plugin_of(plugin), pointer_of(comm), n, data, sizes, tags, memories);
}

/* As isend; returns 0 if there is nothing to wait for. */
JNIEXPORT jlong CALL(iflush)(JNIEnv *env, jclass type, jlong plugin, jlong comm, jint n,
                             jlong address) {
  (void)env;
  (void)type;
  NetFlush function = plugin_of(plugin)->net.iflush;
  if (function == NULL) {
    return 0;
  }
  const Group *group = pointer_of(address);
  void *data[NET_MAX_GROUP];
  int sizes[NET_MAX_GROUP];
  void *memories[NET_MAX_GROUP];
  for (int i = 0; i < n; i++) {
    data[i] = pointer_of(group->addresses[i]);
    sizes[i] = (int)group->sizes[i];
    memories[i] = pointer_of(group->memories[i]);
  }
  void *request = NULL;
  int result = function(pointer_of(comm), n, data, sizes, memories, &request);
  return pointer_or_error(result, request);
}

/*
 * Returns 1 if the request is done, 0 if not; a negative result on failure. sizes is room for n
 * ints, or 0 if they are not needed. They are set to zero first, because some plugins do not write
 * them.
 */
JNIEXPORT jint CALL(test)(JNIEnv *env, jclass type, jlong plugin, jlong request, jlong sizes,
                          jint n) {
  (void)env;
  (void)type;
  int done = 0;
  int *room = pointer_of(sizes);
  for (int i = 0; room != NULL && i < n; i++) {
    room[i] = 0;
  }
  int result = plugin_of(plugin)->net.test(pointer_of(request), &done, room);
  return result == NET_SUCCESS ? done != 0 : -result_of(result);
}

JNIEXPORT jint CALL(closeSend)(JNIEnv *env, jclass type, jlong plugin, jlong comm) {
  (void)env;
  (void)type;
  return result_of(plugin_of(plugin)->net.closeSend(pointer_of(comm)));
}

JNIEXPORT jint CALL(closeRecv)(JNIEnv *env, jclass type, jlong plugin, jlong comm) {
  (void)env;
  (void)type;
  return result_of(plugin_of(plugin)->net.closeRecv(pointer_of(comm)));
}

JNIEXPORT jint CALL(closeListen)(JNIEnv *env, jclass type, jlong plugin, jlong comm) {
  (void)env;
  (void)type;
  return result_of(plugin_of(plugin)->net.closeListen(pointer_of(comm)));
}
