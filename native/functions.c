// SPDX-License-Identifier: Apache-2.0
/*
 * Queries about modules and functions that JCuda's version of the driver API lacks (from CUDA 12.4
 * on).
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "jni_support.h"

typedef int (*parameter_function)(void *function, size_t index, size_t *offset, size_t *size);
typedef int (*load_function)(void *function);
typedef int (*count_function)(unsigned int *count, void *module);
typedef int (*enumerate_function)(void **functions, unsigned int count, void *module);
typedef int (*load_data_function)(void **module, const void *image, unsigned int count,
                                  int *options, void **values);
typedef int (*unload_function)(void *module);
typedef int (*version_function)(int *version);
typedef int (*launch_function)(const LaunchConfig *, void *function, void **parameters,
                               void **extra);

/* From this version on, such launches can also be captured in graphs. */
enum { FIRST_VERSION_TO_OVERLAP = 12030 };

/*
 * Stores offset and size of one parameter into result[0] and [1]; returns INVALID_VALUE if there is
 * none.
 */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_FunctionCalls_parameter(JNIEnv *env,
                                                                           jclass type,
                                                                           jlong function,
                                                                           jint index,
                                                                           jlongArray result) {
  (void)type;
  parameter_function call = (parameter_function)fluxccl_cuda_function("cuFuncGetParamInfo");
  if (call == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  size_t offset = 0;
  size_t size = 0;
  int status = call((void *)(intptr_t)function, (size_t)index, &offset, &size);
  jlong values[2] = {(jlong)offset, (jlong)size};
  (*env)->SetLongArrayRegion(env, result, 0, 2, values);
  return status;
}

/* Loads every function of a module onto the device now, not at its first launch. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_FunctionCalls_loadAll(JNIEnv *env, jclass type,
                                                                         jlong module) {
  (void)type;
  count_function get_count = (count_function)fluxccl_cuda_function("cuModuleGetFunctionCount");
  enumerate_function enumerate =
      (enumerate_function)fluxccl_cuda_function("cuModuleEnumerateFunctions");
  load_function load = (load_function)fluxccl_cuda_function("cuFuncLoad");
  if (get_count == NULL || enumerate == NULL || load == NULL) {
    return CUDA_RESULT_NOT_SUPPORTED;
  }
  unsigned int count = 0;
  int status = get_count(&count, (void *)(intptr_t)module);
  if (status != CUDA_RESULT_SUCCESS || count == 0) {
    return status;
  }
  void **functions = calloc(count, sizeof *functions);
  if (functions == NULL) {
    fluxccl_throw_out_of_memory(env);
    return CUDA_RESULT_SUCCESS;
  }
  status = enumerate(functions, count, (void *)(intptr_t)module);
  for (unsigned int i = 0; i < count && status == CUDA_RESULT_SUCCESS; i++) {
    status = load(functions[i]);
  }
  free(functions);
  return status;
}

JNIEXPORT jboolean JNICALL Java_io_fluxccl_device_cuda_FunctionCalls_canOverlap(JNIEnv *env,
                                                                                jclass type) {
  (void)env;
  (void)type;
  version_function get_version = (version_function)fluxccl_cuda_function("cuDriverGetVersion");
  int version = 0;
  return fluxccl_cuda_function("cuLaunchKernelEx") != NULL && get_version != NULL &&
         get_version(&version) == CUDA_RESULT_SUCCESS && version >= FIRST_VERSION_TO_OVERLAP;
}

/* A launch of one dimension that may begin before the previous launch has ended. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_FunctionCalls_launchOverlapping(
    JNIEnv *env, jclass type, jlong function, jint grid, jint block, jint shared, jlong stream,
    jlong parameters) {
  (void)env;
  (void)type;
  static launch_function launch;
  launch_function call = __atomic_load_n(&launch, __ATOMIC_RELAXED);
  if (call == NULL) {
    call = (launch_function)fluxccl_cuda_function("cuLaunchKernelEx");
    if (call == NULL) {
      return CUDA_RESULT_NOT_SUPPORTED;
    }
    __atomic_store_n(&launch, call, __ATOMIC_RELAXED);
  }
  LaunchAttribute attribute = {.id = ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
  attribute.value.number = 1;
  LaunchConfig config = {
      .grid = {(unsigned)grid, 1, 1},
      .block = {(unsigned)block, 1, 1},
      .sharedBytes = (unsigned)shared,
      .stream = (void *)(intptr_t)stream,
      .attributes = &attribute,
      .attributeCount = 1,
  };
  return call(&config, (void *)(intptr_t)function, (void **)(intptr_t)parameters, NULL);
}

/*
 * Returns the log of the driver's compiler for a PTX image that it refused; loads and unloads the
 * image once more.
 */
JNIEXPORT jbyteArray JNICALL Java_io_fluxccl_device_cuda_FunctionCalls_explain(JNIEnv *env,
                                                                               jclass type,
                                                                               jbyteArray image) {
  (void)type;
  load_data_function load = (load_data_function)fluxccl_cuda_function("cuModuleLoadDataEx");
  unload_function unload = (unload_function)fluxccl_cuda_function("cuModuleUnload");
  if (load == NULL || unload == NULL) {
    return fluxccl_new_bytes(env, "", 0);
  }
  enum { LOG_LENGTH = 16384 };
  char *text = fluxccl_copy_bytes(env, image);
  char *log = calloc(1, LOG_LENGTH);
  jbyteArray answer = NULL;
  if (text != NULL && log != NULL) {
    int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(intptr_t)(LOG_LENGTH - 1)};
    void *module = NULL;
    if (load(&module, text, 2, options, values) == CUDA_RESULT_SUCCESS) {
      unload(module);
    }
    answer = fluxccl_new_bytes(env, log, strnlen(log, LOG_LENGTH));
  } else if (text != NULL) {
    fluxccl_throw_out_of_memory(env);
  }
  free(text);
  free(log);
  return answer;
}
