// SPDX-License-Identifier: Apache-2.0
/*
 * The part of CUDA's driver ABI that this library calls, declared here so that it builds without
 * CUDA's headers. The driver never changes these layouts and numbers. The driver's library is
 * opened at run time.
 */
#ifndef FLUXCCL_CUDA_ABI_H
#define FLUXCCL_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
  CUDA_RESULT_SUCCESS = 0,
  CUDA_RESULT_INVALID_VALUE = 1,
  /* The result if the driver is missing, or too old to have a function. */
  CUDA_RESULT_NOT_SUPPORTED = 801,
};

enum {
  ALLOCATION_PINNED = 1,
  HANDLE_POSIX_DESCRIPTOR = 1,
  LOCATION_DEVICE = 1,
  ACCESS_READ_WRITE = 3,
  GRANULARITY_MINIMUM = 0,
  RANGE_HANDLE_DMA_BUF = 1,
  ATTRIBUTE_RDMA_WITH_VMM = 110,
  JIT_ERROR_LOG = 5,
  JIT_ERROR_LOG_SIZE = 6,
  ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

typedef struct {
  int type;
  int id;
} MemLocation;

typedef struct {
  int type;
  int requestedHandleTypes;
  MemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRdmaCapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} MemAllocationProp;

typedef struct {
  MemLocation location;
  int flags;
} MemAccessDesc;

typedef struct {
  int id;
  char padding[4];
  union {
    char room[64];
    int number;
  } value;
} LaunchAttribute;

typedef struct {
  unsigned grid[3];
  unsigned block[3];
  unsigned sharedBytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
} LaunchConfig;

_Static_assert(sizeof(LaunchAttribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(LaunchConfig) == 56, "CUlaunchConfig");
_Static_assert(offsetof(LaunchConfig, stream) == 32, "CUlaunchConfig.hStream");
_Static_assert(sizeof(MemAllocationProp) == 32, "CUmemAllocationProp");
_Static_assert(offsetof(MemAllocationProp, allocFlags) == 24, "CUmemAllocationProp.allocFlags");
_Static_assert(sizeof(MemAccessDesc) == 12, "CUmemAccessDesc");

/* Returns a function of libcuda.so.1 by its name; NULL if there is no driver or it is too old. */
void *fluxccl_cuda_function(const char *name);

#endif
