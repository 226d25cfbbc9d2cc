// SPDX-License-Identifier: Apache-2.0
/*
 * NCCL's interface to network plugins, versions 6 to 12, declared here so that vendors' plugins can
 * be called without NCCL's headers. A version's table is the first part of the next version's. Only
 * the arguments of functions have changed, so each function has a type for every form that it ever
 * had.
 */
#ifndef FLUXCCL_NETPLUGIN_ABI_H
#define FLUXCCL_NETPLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
  NET_OLDEST_VERSION = 6,
  NET_NEWEST_VERSION = 12,
  NET_HANDLE_BYTES = 128,
  /* The largest number of messages in one receive that any plugin is asked for. */
  NET_MAX_GROUP = 32,
};

enum { NET_SUCCESS = 0, NET_INTERNAL_ERROR = 3 };

enum {
  NET_LOG_NONE = 0,
  NET_LOG_VERSION = 1,
  NET_LOG_WARN = 2,
  NET_LOG_INFO = 3,
  NET_LOG_ABORT = 4,
  NET_LOG_TRACE = 5,
};

typedef void (*NetLogger)(int level, unsigned long flags, const char *file, int line,
                          const char *format, ...);
typedef int (*NetProfiler)(void **event, int type, void *parent, int64_t plugin, void *data);

typedef struct {
  int trafficClass;
} NetConfig;

/* Properties: a new struct for each version that inserted a field in the middle. */

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  /* From version 7 on. */
  int netDeviceType;
  int netDeviceVersion;
} NetProperties7;

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
} NetProperties8;

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  int nVirtual;
  int virtualDevices[4];
  size_t maxP2pBytes;
  size_t maxCollBytes;
  /* From version 11 on. */
  int maxMultiRequestSize;
} NetProperties11;

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  int nVirtual;
  int virtualDevices[8];
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;
  int16_t planeId;
} NetProperties12;

_Static_assert(offsetof(NetProperties7, netDeviceType) == 48, "properties of version 6");
_Static_assert(sizeof(NetProperties7) == 56, "properties of version 7");
_Static_assert(sizeof(NetProperties8) == 64, "properties of version 8");
_Static_assert(offsetof(NetProperties11, maxMultiRequestSize) == 104, "versions 9 and 10");
_Static_assert(sizeof(NetProperties11) == 112, "properties of version 11");
_Static_assert(sizeof(NetProperties12) == 128, "properties of version 12");

/* The forms of each function, by the version that introduced them. */

typedef int (*NetInit6)(NetLogger);
typedef int (*NetInit10)(NetLogger, NetProfiler);
typedef int (*NetInit11)(void **context, uint64_t job, NetConfig *, NetLogger, NetProfiler);
typedef int (*NetDevices)(int *count);
typedef int (*NetGetProperties)(int device, void *properties);
typedef int (*NetListen6)(int device, void *handle, void **comm);
typedef int (*NetListen11)(void *context, int device, void *handle, void **comm);
typedef int (*NetConnect6)(int device, void *handle, void **comm);
typedef int (*NetConnect7)(int device, void *handle, void **comm, void **deviceComm);
typedef int (*NetConnect10)(int device, NetConfig *, void *handle, void **comm, void **deviceComm);
typedef int (*NetConnect11)(void *context, int device, void *handle, void **comm,
                            void **deviceComm);
typedef int (*NetAccept6)(void *listener, void **comm);
typedef int (*NetAccept7)(void *listener, void **comm, void **deviceComm);
typedef int (*NetRegister6)(void *comm, void *data, int size, int type, void **memory);
typedef int (*NetRegister8)(void *comm, void *data, size_t size, int type, void **memory);
typedef int (*NetRegisterDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                                 int descriptor, void **memory);
typedef int (*NetDeregister)(void *comm, void *memory);
typedef int (*NetSend6)(void *comm, void *data, int size, int tag, void *memory, void **request);
typedef int (*NetSend9)(void *comm, void *data, size_t size, int tag, void *memory,
                        void **request);
typedef int (*NetSend10)(void *comm, void *data, size_t size, int tag, void *memory,
                         void *profile, void **request);
typedef int (*NetReceive6)(void *comm, int n, void **data, int *sizes, int *tags, void **memories,
                           void **request);
typedef int (*NetReceive9)(void *comm, int n, void **data, size_t *sizes, int *tags,
                           void **memories, void **request);
typedef int (*NetReceive10)(void *comm, int n, void **data, size_t *sizes, int *tags,
                            void **memories, void **profiles, void **request);
typedef int (*NetFlush)(void *comm, int n, void **data, int *sizes, void **memories,
                        void **request);
typedef int (*NetTest)(void *request, int *done, int *sizes);
typedef int (*NetClose)(void *comm);
typedef int (*NetFinalize)(void *context);

typedef void (*NetFunction)(void);

typedef struct {
  const char *name;
  NetFunction init;
  NetDevices devices;
  NetGetProperties getProperties;
  NetFunction listen;
  NetFunction connect;
  NetFunction accept;
  NetFunction regMr;
  NetRegisterDmaBuf regMrDmaBuf;
  NetDeregister deregMr;
  NetFunction isend;
  NetFunction irecv;
  NetFlush iflush;
  NetTest test;
  NetClose closeSend;
  NetClose closeRecv;
  NetClose closeListen;
  /* From version 7 on. */
  NetFunction getDeviceMr;
  NetFunction irecvConsumed;
  /* From version 9 on. */
  NetFunction makeVDevice;
  /* From version 11 on. */
  NetFinalize finalize;
  NetFunction setNetAttr;
} NetTable;

_Static_assert(offsetof(NetTable, getDeviceMr) == 0x88, "table of version 6");
_Static_assert(offsetof(NetTable, makeVDevice) == 0x98, "table of versions 7 and 8");
_Static_assert(offsetof(NetTable, finalize) == 0xa0, "table of versions 9 and 10");
_Static_assert(sizeof(NetTable) == 0xb0, "table of versions 11 and 12");

/* Log lines: netplugin_log.c. */

/*
 * Returns a logger for one plugin, which drops lines above the level; NULL if all loggers are in
 * use.
 */
NetLogger fluxccl_net_take_logger(const char *label, int level, int *slot);

/* Releases a logger, once its plugin makes no more calls. */
void fluxccl_net_return_logger(int slot);

#endif
