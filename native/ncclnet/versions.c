// SPDX-License-Identifier: Apache-2.0
// The tables of functions that NCCL loads: one for each version of its interface. The versions differ in
// arguments only; calls.c does the work.
#include "abi.h"

#define EXPORTED __attribute__((visibility("default")))
// NCCL compares this name with NCCL_NET before it calls a function.
#define NETWORK_NAME "fluxccl"

// ---- properties ----

#define FILL_FIRST(to, from)                                                                       \
  do {                                                                                             \
    (to)->name = (char *)(from)->name;                                                             \
    (to)->pciPath = (from)->pci_path[0] ? (char *)(from)->pci_path : NULL;                         \
    (to)->guid = (from)->guid;                                                                     \
    (to)->ptrSupport = (from)->pointers;                                                           \
    (to)->speed = (from)->speed;                                                                   \
    (to)->port = (from)->port;                                                                     \
    (to)->latency = (from)->latency;                                                               \
    (to)->maxComms = (from)->max_comms;                                                            \
    (to)->maxRecvs = (from)->max_recvs;                                                            \
  } while (0)

// Type 0: the host drives the device.
#define FILL_DEVICE(to)                                                                            \
  do {                                                                                             \
    (to)->netDeviceType = 0;                                                                       \
    (to)->netDeviceVersion = 0;                                                                    \
  } while (0)

#define FILL_V9(to, from, device)                                                                  \
  do {                                                                                             \
    FILL_DEVICE(to);                                                                               \
    (to)->regIsGlobal = (from)->reg_is_global;                                                     \
    (to)->forceFlush = (from)->force_flush;                                                        \
    (to)->vProps.ndevs = 1;                                                                        \
    (to)->vProps.devs[0] = device;                                                                 \
    (to)->maxP2pBytes = (from)->max_bytes;                                                         \
    (to)->maxCollBytes = (from)->max_bytes;                                                        \
  } while (0)

#define PROPERTIES(v, more)                                                                        \
  static int properties_v##v(int device, struct properties_v##v *to) {                             \
    int result;                                                                                    \
    const struct fluxccl_properties *from = net_properties(device, &result);                       \
    if (from) {                                                                                    \
      FILL_FIRST(to, from);                                                                        \
      more;                                                                                        \
    }                                                                                              \
    return result;                                                                                 \
  }

PROPERTIES(6, (void)0)
PROPERTIES(7, FILL_DEVICE(to))
PROPERTIES(8, FILL_DEVICE(to); to->regIsGlobal = from->reg_is_global)
PROPERTIES(9, FILL_V9(to, from, device))
PROPERTIES(11, FILL_V9(to, from, device); to->maxMultiRequestSize = 1)
// -1: rail and plane are unknown.
PROPERTIES(12, FILL_V9(to, from, device); to->maxMultiRequestSize = 1; to->railId = -1; to->planeId = -1)

// ---- from the arguments of a version to those of calls.c ----

static int init_v10(logger log, void *profiler) {
  (void)profiler;
  return net_init(log);
}

static int init_v11(void **context, uint64_t communicator, void *config, logger log, void *profiler) {
  (void)communicator;
  (void)config;
  (void)profiler;
  // Communicators share the network. NCCL only requires a context that is not NULL.
  static int shared;
  int result = net_init(log);
  *context = result == RESULT_SUCCESS ? &shared : NULL;
  return result;
}

static int finalize_v11(void *context) {
  // NULL: its init failed, and has opened nothing.
  return context ? net_finalize() : RESULT_SUCCESS;
}

static int set_attributes(void *context, void *attributes) {
  (void)context;
  (void)attributes;
  return RESULT_SUCCESS;
}

static int listen_v11(void *context, int device, void *handle, void **listener) {
  (void)context;
  return net_listen(device, handle, listener);
}

// The last argument is for networks that the GPU drives; this one is not.
static int connect_v7(int device, void *handle, void **comm, void **device_comm) {
  (void)device_comm;
  return net_connect(device, handle, comm);
}

static int connect_v10(int device, void *config, void *handle, void **comm, void **device_comm) {
  (void)config;
  (void)device_comm;
  return net_connect(device, handle, comm);
}

static int connect_v11(void *context, int device, void *handle, void **comm, void **device_comm) {
  (void)context;
  (void)device_comm;
  return net_connect(device, handle, comm);
}

static int accept_v7(void *listener, void **comm, void **device_comm) {
  (void)device_comm;
  return net_accept(listener, comm);
}

static int register_v6(void *comm, void *data, int size, int type, void **memory) {
  return size < 0 ? RESULT_INTERNAL_ERROR : net_register(comm, data, (size_t)size, type, memory);
}

static int isend_v6(void *comm, void *data, int size, int tag, void *memory, void **request) {
  return size < 0 ? RESULT_INTERNAL_ERROR : net_isend(comm, data, (size_t)size, tag, memory, request);
}

static int isend_v10(void *comm, void *data, size_t size, int tag, void *memory, void *profiled, void **request) {
  (void)profiled;
  return net_isend(comm, data, size, tag, memory, request);
}

static int irecv_v6(void *comm, int n, void **data, int *sizes, int *tags, void **memories, void **request) {
  return net_irecv(comm, n, data, sizes, false, tags, memories, request);
}

static int irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags, void **memories, void **request) {
  return net_irecv(comm, n, data, sizes, true, tags, memories, request);
}

static int irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags, void **memories, void **profiled,
                     void **request) {
  (void)profiled;
  return net_irecv(comm, n, data, sizes, true, tags, memories, request);
}

static int iflush(void *comm, int n, void **data, int *sizes, void **memories, void **request) {
  return net_iflush(comm, n, data, sizes, memories, request);
}

// FluxCCL also loads NCCL's plugins. By this symbol it recognizes its own library.
EXPORTED const int fluxccl_nccl_net = 1;

// ---- the tables ----

// Functions that are left out stay NULL, so NCCL does not use them. irecvConsumed is one of them: if it were
// present, NCCL would call it after every receive, even if the GPU does not drive the network.

#define MEMORY(reg) .regMr = reg, .regMrDmaBuf = net_register_dma_buf, .deregMr = net_deregister
#define END                                                                                        \
  .iflush = iflush, .test = net_test, .closeSend = net_close, .closeRecv = net_close,              \
  .closeListen = net_close_listen

EXPORTED const struct net_v6 ncclNetPlugin_v6 = {
    .name = NETWORK_NAME, .init = net_init, .devices = net_devices, .getProperties = properties_v6,
    .listen = net_listen, .connect = net_connect, .accept = net_accept, MEMORY(register_v6),
    .isend = isend_v6, .irecv = irecv_v6, END,
};

EXPORTED const struct net_v7 ncclNetPlugin_v7 = {
    .name = NETWORK_NAME, .init = net_init, .devices = net_devices, .getProperties = properties_v7,
    .listen = net_listen, .connect = connect_v7, .accept = accept_v7, MEMORY(register_v6),
    .isend = isend_v6, .irecv = irecv_v6, END,
};

EXPORTED const struct net_v8 ncclNetPlugin_v8 = {
    .name = NETWORK_NAME, .init = net_init, .devices = net_devices, .getProperties = properties_v8,
    .listen = net_listen, .connect = connect_v7, .accept = accept_v7, MEMORY(net_register),
    .isend = isend_v6, .irecv = irecv_v6, END,
};

EXPORTED const struct net_v9 ncclNetPlugin_v9 = {
    .name = NETWORK_NAME, .init = net_init, .devices = net_devices, .getProperties = properties_v9,
    .listen = net_listen, .connect = connect_v7, .accept = accept_v7, MEMORY(net_register),
    .isend = net_isend, .irecv = irecv_v9, END,
};

EXPORTED const struct net_v10 ncclNetPlugin_v10 = {
    .name = NETWORK_NAME, .init = init_v10, .devices = net_devices, .getProperties = properties_v9,
    .listen = net_listen, .connect = connect_v10, .accept = accept_v7, MEMORY(net_register),
    .isend = isend_v10, .irecv = irecv_v10, END,
};

EXPORTED const struct net_v11 ncclNetPlugin_v11 = {
    .name = NETWORK_NAME, .init = init_v11, .devices = net_devices, .getProperties = properties_v11,
    .listen = listen_v11, .connect = connect_v11, .accept = accept_v7, MEMORY(net_register),
    .isend = isend_v10, .irecv = irecv_v10, END,
    .finalize = finalize_v11, .setNetAttr = set_attributes,
};

EXPORTED const struct net_v12 ncclNetPlugin_v12 = {
    .name = NETWORK_NAME, .init = init_v11, .devices = net_devices, .getProperties = properties_v12,
    .listen = listen_v11, .connect = connect_v11, .accept = accept_v7, MEMORY(net_register),
    .isend = isend_v10, .irecv = irecv_v10, END,
    .finalize = finalize_v11, .setNetAttr = set_attributes,
};
