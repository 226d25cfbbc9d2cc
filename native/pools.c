// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of CUDA's memory pools, shared between processes. Each function makes one driver call and
 * returns its CUresult.
 */
#include <fcntl.h>
#include <string.h>

#include "cuda_abi.h"
#include "jni_support.h"

/* CUmemPoolPtrExportData. */
typedef struct {
  unsigned char bytes[64];
} PointerData;

typedef int (*export_pool_function)(void *handle, void *pool, int type, unsigned long long flags);
typedef int (*export_pointer_function)(PointerData *data, unsigned long long address);
typedef int (*import_pool_function)(void **pool, void *handle, int type,
                                    unsigned long long flags);
typedef int (*import_pointer_function)(unsigned long long *address, void *pool,
                                       PointerData *data);
typedef int (*set_access_function)(void *pool, const MemAccessDesc *access, size_t count);
typedef int (*destroy_function)(void *pool);

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_exportPool(JNIEnv *env, jclass type,
                                                                       jlong pool,
                                                                       jintArray result) {
  (void)type;
  export_pool_function call =
      (export_pool_function)fluxccl_cuda_function("cuMemPoolExportToShareableHandle");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  int descriptor = -1;
  int status = call(&descriptor, (void *)(intptr_t)pool, HANDLE_POSIX_DESCRIPTOR, 0);
  if (status == CUDA_RESULT_SUCCESS) {
    /* Programs that this process starts must not keep the memory alive. */
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
  put_int(env, result, descriptor);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_exportPointer(JNIEnv *env, jclass type,
                                                                          jlong address,
                                                                          jbyteArray result) {
  (void)type;
  export_pointer_function call =
      (export_pointer_function)fluxccl_cuda_function("cuMemPoolExportPointer");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  PointerData data;
  memset(&data, 0, sizeof data);
  int status = call(&data, (unsigned long long)address);
  (*env)->SetByteArrayRegion(env, result, 0, (jsize)sizeof data, (const jbyte *)data.bytes);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_importPool(JNIEnv *env, jclass type,
                                                                       jint descriptor,
                                                                       jlongArray result) {
  (void)type;
  import_pool_function call =
      (import_pool_function)fluxccl_cuda_function("cuMemPoolImportFromShareableHandle");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  void *pool = NULL;
  /* The driver expects the descriptor's number in place of the pointer. */
  int status = call(&pool, (void *)(intptr_t)descriptor, HANDLE_POSIX_DESCRIPTOR, 0);
  put_long(env, result, (jlong)(intptr_t)pool);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_importPointer(
    JNIEnv *env, jclass type, jlong pool, jbyteArray bytes, jlongArray result) {
  (void)type;
  import_pointer_function call =
      (import_pointer_function)fluxccl_cuda_function("cuMemPoolImportPointer");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  PointerData data;
  if ((*env)->GetArrayLength(env, bytes) != (jsize)sizeof data) {
    return CUDA_RESULT_INVALID_VALUE;
  }
  (*env)->GetByteArrayRegion(env, bytes, 0, (jsize)sizeof data, (jbyte *)data.bytes);
  unsigned long long address = 0;
  int status = call(&address, (void *)(intptr_t)pool, &data);
  put_long(env, result, (jlong)address);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_setPoolAccess(JNIEnv *env, jclass type,
                                                                          jlong pool, jint device) {
  (void)env;
  (void)type;
  set_access_function call = (set_access_function)fluxccl_cuda_function("cuMemPoolSetAccess");
  MemAccessDesc access = {{LOCATION_DEVICE, device}, ACCESS_READ_WRITE};
  return call == NULL ? CUDA_RESULT_NOT_SUPPORTED : call((void *)(intptr_t)pool, &access, 1);
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_VmmCalls_destroyPool(JNIEnv *env, jclass type,
                                                                        jlong pool) {
  (void)env;
  (void)type;
  destroy_function call = (destroy_function)fluxccl_cuda_function("cuMemPoolDestroy");
  return call == NULL ? CUDA_RESULT_NOT_SUPPORTED : call((void *)(intptr_t)pool);
}
