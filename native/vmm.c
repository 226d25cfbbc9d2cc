// SPDX-License-Identifier: Apache-2.0
/*
 * GPU memory through CUDA's virtual memory management. Each function makes one driver call and
 * returns its CUresult.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "jni_support.h"

typedef int (*attribute_function)(int *value, int attribute, int device);
typedef int (*granularity_function)(size_t *, const MemAllocationProp *, int option);
typedef int (*create_function)(unsigned long long *handle, size_t size, const MemAllocationProp *,
                               unsigned long long flags);
typedef int (*release_function)(unsigned long long handle);
typedef int (*reserve_function)(unsigned long long *address, size_t size, size_t alignment,
                                unsigned long long wish, unsigned long long flags);
typedef int (*range_function)(unsigned long long address, size_t size);
typedef int (*map_function)(unsigned long long address, size_t size, size_t offset,
                            unsigned long long handle, unsigned long long flags);
typedef int (*access_function)(unsigned long long address, size_t size, const MemAccessDesc *,
                               size_t count);
typedef int (*export_function)(void *target, unsigned long long handle, int type,
                               unsigned long long flags);
typedef int (*range_handle_function)(void *target, unsigned long long address, size_t size,
                                     int type, unsigned long long flags);
typedef int (*retain_function)(unsigned long long *handle, void *address);
typedef int (*import_function)(unsigned long long *handle, void *source, int type);

static int supports_rdma(int device) {
  attribute_function get_attribute =
      (attribute_function)fluxccl_cuda_function("cuDeviceGetAttribute");
  int value = 0;
  return get_attribute != NULL && get_attribute(&value, ATTRIBUTE_RDMA_WITH_VMM, device) == 0 &&
         value != 0;
}

/* Memory on a device that other processes can map and, if possible, network cards can reach. */
static MemAllocationProp shareable_memory_on(int device) {
  MemAllocationProp prop;
  memset(&prop, 0, sizeof prop);
  prop.type = ALLOCATION_PINNED;
  prop.requestedHandleTypes = HANDLE_POSIX_DESCRIPTOR;
  prop.location.type = LOCATION_DEVICE;
  prop.location.id = device;
  prop.allocFlags.gpuDirectRdmaCapable = supports_rdma(device) ? 1 : 0;
  return prop;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_granularity(JNIEnv *env, jclass type,
                                                                        jint device,
                                                                        jlongArray result) {
  (void)type;
  granularity_function call =
      (granularity_function)fluxccl_cuda_function("cuMemGetAllocationGranularity");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  MemAllocationProp prop = shareable_memory_on(device);
  size_t granularity = 0;
  int status = call(&granularity, &prop, GRANULARITY_MINIMUM);
  put_long(env, result, (jlong)granularity);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_create(JNIEnv *env, jclass type,
                                                                   jint device, jlong size,
                                                                   jlongArray result) {
  (void)type;
  create_function call = (create_function)fluxccl_cuda_function("cuMemCreate");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  MemAllocationProp prop = shareable_memory_on(device);
  unsigned long long handle = 0;
  int status = call(&handle, (size_t)size, &prop, 0);
  put_long(env, result, (jlong)handle);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_release(JNIEnv *env, jclass type,
                                                                    jlong handle) {
  (void)env;
  (void)type;
  release_function call = (release_function)fluxccl_cuda_function("cuMemRelease");
  return call == NULL ? CUDA_RESULT_NOT_SUPPORTED : call((unsigned long long)handle);
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_reserve(JNIEnv *env, jclass type,
                                                                    jlong size, jlong alignment,
                                                                    jlongArray result) {
  (void)type;
  reserve_function call = (reserve_function)fluxccl_cuda_function("cuMemAddressReserve");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  unsigned long long address = 0;
  int status = call(&address, (size_t)size, (size_t)alignment, 0, 0);
  put_long(env, result, (jlong)address);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_free(JNIEnv *env, jclass type,
                                                                 jlong address, jlong size) {
  (void)env;
  (void)type;
  range_function call = (range_function)fluxccl_cuda_function("cuMemAddressFree");
  return call == NULL ? CUDA_RESULT_NOT_SUPPORTED
                      : call((unsigned long long)address, (size_t)size);
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_map(JNIEnv *env, jclass type,
                                                                jlong address, jlong size,
                                                                jlong handle) {
  (void)env;
  (void)type;
  map_function call = (map_function)fluxccl_cuda_function("cuMemMap");
  return call == NULL ? CUDA_RESULT_NOT_SUPPORTED
                      : call((unsigned long long)address, (size_t)size, 0,
                             (unsigned long long)handle, 0);
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_unmap(JNIEnv *env, jclass type,
                                                                  jlong address, jlong size) {
  (void)env;
  (void)type;
  range_function call = (range_function)fluxccl_cuda_function("cuMemUnmap");
  return call == NULL ? CUDA_RESULT_NOT_SUPPORTED
                      : call((unsigned long long)address, (size_t)size);
}

/* Lets all the given devices read and write the range. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_setAccess(JNIEnv *env, jclass type,
                                                                      jlong address, jlong size,
                                                                      jintArray devices) {
  (void)type;
  access_function call = (access_function)fluxccl_cuda_function("cuMemSetAccess");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  enum { MOST_DEVICES = 64 };
  jint ids[MOST_DEVICES];
  MemAccessDesc access[MOST_DEVICES];
  jsize count = (*env)->GetArrayLength(env, devices);
  if (count > MOST_DEVICES) {
    return CUDA_RESULT_INVALID_VALUE;
  }
  (*env)->GetIntArrayRegion(env, devices, 0, count, ids);
  for (jsize i = 0; i < count; i++) {
    access[i].location.type = LOCATION_DEVICE;
    access[i].location.id = ids[i];
    access[i].flags = ACCESS_READ_WRITE;
  }
  return call((unsigned long long)address, (size_t)size, access, (size_t)count);
}

/* Returns a handle of the memory that is mapped at the address, also if other code mapped it. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_retain(JNIEnv *env, jclass type,
                                                                   jlong address,
                                                                   jlongArray result) {
  (void)type;
  retain_function call = (retain_function)fluxccl_cuda_function("cuMemRetainAllocationHandle");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  unsigned long long handle = 0;
  int status = call(&handle, (void *)(intptr_t)address);
  put_long(env, result, (jlong)handle);
  return status;
}

/* Creates a file descriptor of the memory. Its holder keeps the memory alive until it closes it. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_exportDescriptor(JNIEnv *env,
                                                                             jclass type,
                                                                             jlong handle,
                                                                             jintArray result) {
  (void)type;
  export_function call = (export_function)fluxccl_cuda_function("cuMemExportToShareableHandle");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  int descriptor = -1;
  int status = call(&descriptor, (unsigned long long)handle, HANDLE_POSIX_DESCRIPTOR, 0);
  if (status == CUDA_RESULT_SUCCESS) {
    /* Programs that this process starts must not keep the memory alive. */
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
  put_int(env, result, descriptor);
  return status;
}

/* Creates a dma-buf of a range of whole pages, by which other devices reach the memory. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_exportDmaBuf(JNIEnv *env, jclass type,
                                                                         jlong address, jlong size,
                                                                         jintArray result) {
  (void)type;
  range_handle_function call =
      (range_handle_function)fluxccl_cuda_function("cuMemGetHandleForAddressRange");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  int descriptor = -1;
  int status = call(&descriptor, (unsigned long long)address, (size_t)size, RANGE_HANDLE_DMA_BUF, 0);
  if (status == CUDA_RESULT_SUCCESS) {
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
  put_int(env, result, descriptor);
  return status;
}

/* Imports the memory of a descriptor. The caller still has to close the descriptor. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_importDescriptor(JNIEnv *env,
                                                                             jclass type,
                                                                             jint descriptor,
                                                                             jlongArray result) {
  (void)type;
  import_function call = (import_function)fluxccl_cuda_function("cuMemImportFromShareableHandle");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  unsigned long long handle = 0;
  /* The driver expects the descriptor's number in place of the pointer. */
  int status = call(&handle, (void *)(intptr_t)descriptor, HANDLE_POSIX_DESCRIPTOR);
  put_long(env, result, (jlong)handle);
  return status;
}
