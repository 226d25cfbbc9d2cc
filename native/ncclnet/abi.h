// SPDX-License-Identifier: Apache-2.0
// The memory layout of NCCL's interface for network plugins, versions 6 to 12. The sizes are asserted,
// because nothing else would detect a wrong one.
#ifndef FLUXCCL_NCCL_ABI_H
#define FLUXCCL_NCCL_ABI_H

#include "ncclnet.h"

// ---- properties of a device ----

#define PROPERTIES_FIRST char *name, *pciPath; uint64_t guid; int ptrSupport;
#define PROPERTIES_SPEED int speed, port; float latency; int maxComms, maxRecvs;
#define PROPERTIES_DEVICE int netDeviceType, netDeviceVersion;
#define PROPERTIES_SIZES size_t maxP2pBytes, maxCollBytes;

struct properties_v6 { PROPERTIES_FIRST PROPERTIES_SPEED };
struct properties_v7 { PROPERTIES_FIRST PROPERTIES_SPEED PROPERTIES_DEVICE };
struct properties_v8 { PROPERTIES_FIRST int regIsGlobal; PROPERTIES_SPEED PROPERTIES_DEVICE };
struct devices_v9 { int ndevs, devs[4]; };
struct properties_v9 {
  PROPERTIES_FIRST int regIsGlobal, forceFlush; PROPERTIES_SPEED PROPERTIES_DEVICE
  struct devices_v9 vProps; PROPERTIES_SIZES
};
struct properties_v11 {
  PROPERTIES_FIRST int regIsGlobal, forceFlush; PROPERTIES_SPEED PROPERTIES_DEVICE
  struct devices_v9 vProps; PROPERTIES_SIZES int maxMultiRequestSize;
};
struct devices_v12 { int ndevs, devs[8]; };
struct properties_v12 {
  PROPERTIES_FIRST int regIsGlobal, forceFlush; PROPERTIES_SPEED PROPERTIES_DEVICE
  struct devices_v12 vProps; PROPERTIES_SIZES int maxMultiRequestSize; int16_t railId, planeId;
};

// ---- the tables of functions ----

#define CALLS_PROPERTIES(v) int (*devices)(int *); int (*getProperties)(int, struct properties_v##v *);
#define CALLS_MEMORY(size) \
  int (*regMr)(void *, void *, size, int, void **); \
  int (*regMrDmaBuf)(void *, void *, size_t, int, uint64_t, int, void **); \
  int (*deregMr)(void *, void *);
#define CALLS_END \
  int (*iflush)(void *, int, void **, int *, void **, void **); \
  int (*test)(void *, int *, int *); \
  int (*closeSend)(void *); int (*closeRecv)(void *); int (*closeListen)(void *);
#define CALLS_OFFLOAD \
  int (*getDeviceMr)(void *, void *, void **); int (*irecvConsumed)(void *, int, void *);

struct net_v6 {
  const char *name;
  int (*init)(logger);
  CALLS_PROPERTIES(6)
  int (*listen)(int, void *, void **);
  int (*connect)(int, void *, void **);
  int (*accept)(void *, void **);
  CALLS_MEMORY(int)
  int (*isend)(void *, void *, int, int, void *, void **);
  int (*irecv)(void *, int, void **, int *, int *, void **, void **);
  CALLS_END
};

#define NET_V7_V8(v, size) \
  struct net_v##v { \
    const char *name; \
    int (*init)(logger); \
    CALLS_PROPERTIES(v) \
    int (*listen)(int, void *, void **); \
    int (*connect)(int, void *, void **, void **); \
    int (*accept)(void *, void **, void **); \
    CALLS_MEMORY(size) \
    int (*isend)(void *, void *, int, int, void *, void **); \
    int (*irecv)(void *, int, void **, int *, int *, void **, void **); \
    CALLS_END CALLS_OFFLOAD \
  };
NET_V7_V8(7, int)
NET_V7_V8(8, size_t)

struct net_v9 {
  const char *name;
  int (*init)(logger);
  CALLS_PROPERTIES(9)
  int (*listen)(int, void *, void **);
  int (*connect)(int, void *, void **, void **);
  int (*accept)(void *, void **, void **);
  CALLS_MEMORY(size_t)
  int (*isend)(void *, void *, size_t, int, void *, void **);
  int (*irecv)(void *, int, void **, size_t *, int *, void **, void **);
  CALLS_END CALLS_OFFLOAD
  int (*makeVDevice)(int *, struct devices_v9 *);
};

struct net_v10 {
  const char *name;
  int (*init)(logger, void *profiler);
  CALLS_PROPERTIES(9)
  int (*listen)(int, void *, void **);
  int (*connect)(int, void *config, void *, void **, void **);
  int (*accept)(void *, void **, void **);
  CALLS_MEMORY(size_t)
  int (*isend)(void *, void *, size_t, int, void *, void *profiled, void **);
  int (*irecv)(void *, int, void **, size_t *, int *, void **, void **profiled, void **);
  CALLS_END CALLS_OFFLOAD
  int (*makeVDevice)(int *, struct devices_v9 *);
};

#define NET_V11_V12(v, devices) \
  struct net_v##v { \
    const char *name; \
    int (*init)(void **context, uint64_t communicator, void *config, logger, void *profiler); \
    CALLS_PROPERTIES(v) \
    int (*listen)(void *context, int, void *, void **); \
    int (*connect)(void *context, int, void *, void **, void **); \
    int (*accept)(void *, void **, void **); \
    CALLS_MEMORY(size_t) \
    int (*isend)(void *, void *, size_t, int, void *, void *profiled, void **); \
    int (*irecv)(void *, int, void **, size_t *, int *, void **, void **profiled, void **); \
    CALLS_END CALLS_OFFLOAD \
    int (*makeVDevice)(int *, struct devices *); \
    int (*finalize)(void *context); \
    int (*setNetAttr)(void *context, void *attributes); \
  };
NET_V11_V12(11, devices_v9)
NET_V11_V12(12, devices_v12)

_Static_assert(sizeof(struct net_v6) == 0x88, "v6");
_Static_assert(sizeof(struct net_v7) == 0x98, "v7");
_Static_assert(sizeof(struct net_v8) == 0x98, "v8");
_Static_assert(sizeof(struct net_v9) == 0xa0, "v9");
_Static_assert(sizeof(struct net_v10) == 0xa0, "v10");
_Static_assert(sizeof(struct net_v11) == 0xb0, "v11");
_Static_assert(sizeof(struct net_v12) == 0xb0, "v12");
_Static_assert(offsetof(struct properties_v6, maxRecvs) == 44, "properties of v6");
_Static_assert(offsetof(struct properties_v7, netDeviceType) == 48, "properties of v7");
_Static_assert(offsetof(struct properties_v8, netDeviceType) == 52, "properties of v8");
_Static_assert(offsetof(struct properties_v9, vProps) == 64, "properties of v9");
_Static_assert(offsetof(struct properties_v9, maxP2pBytes) == 88, "properties of v9");
_Static_assert(offsetof(struct properties_v11, maxMultiRequestSize) == 104, "properties of v11");
_Static_assert(offsetof(struct properties_v12, maxP2pBytes) == 104, "properties of v12");
_Static_assert(offsetof(struct properties_v12, railId) == 124, "properties of v12");

#endif
