// SPDX-License-Identifier: Apache-2.0
/* Launches the only kernel of a graph, or a graph, again and again and waits for it, as a C program would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

typedef struct {
  void *function;
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
  void **arguments;
  void **extra;
  void *kernel;
  void *context;
} KernelNode;

typedef int (*GetNodes)(void *graph, void **nodes, size_t *count);
typedef int (*GetParams)(void *node, KernelNode *params);
typedef int (*Launch)(void *function, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                      unsigned int, unsigned int shared_bytes, void *stream, void **arguments, void **extra);
typedef int (*LaunchGraph)(void *graph, void *stream);
typedef int (*Synchronize)(void *stream);

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Returns a function of the driver, or NULL. */
static void *driver_function(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver == NULL ? NULL : dlsym(driver, name);
}

/* Nanoseconds of each launch into the array; a CUresult, or -1 when the graph is not one kernel. */
__attribute__((visibility("default"))) int32_t Java_io_fluxccl_benchmarks_LaunchLoop_run(
    void *env, void *type, int64_t graph, int64_t stream, int64_t launches, int64_t nanos) {
  (void)env;
  (void)type;
  GetNodes get_nodes = (GetNodes)driver_function("cuGraphGetNodes");
  GetParams get_params = (GetParams)driver_function("cuGraphKernelNodeGetParams_v2");
  Launch launch = (Launch)driver_function("cuLaunchKernel");
  Synchronize synchronize = (Synchronize)driver_function("cuStreamSynchronize");
  if (get_nodes == NULL || get_params == NULL || launch == NULL || synchronize == NULL) {
    return -1;
  }
  void *node = NULL;
  size_t count = 0;
  KernelNode kernel = {0};
  int result = get_nodes((void *)(intptr_t)graph, NULL, &count);
  if (result == 0 && count != 1) {
    return -1;
  }
  if (result == 0) {
    result = get_nodes((void *)(intptr_t)graph, &node, &count);
  }
  if (result == 0) {
    result = get_params(node, &kernel);
  }
  void *on = (void *)(intptr_t)stream;
  int64_t *times = (int64_t *)(intptr_t)nanos;
  for (int64_t i = 0; i < launches && result == 0; i++) {
    int64_t start = now();
    result = launch(kernel.function, kernel.grid[0], kernel.grid[1], kernel.grid[2], kernel.block[0],
                    kernel.block[1], kernel.block[2], kernel.shared_bytes, on, kernel.arguments, kernel.extra);
    if (result == 0) {
      result = synchronize(on);
    }
    times[i] = now() - start;
  }
  return result;
}

/* Stores the nanoseconds of each launch of an executable graph. Awaits each launch if each is set, otherwise only the
 * last. */
__attribute__((visibility("default"))) int32_t Java_io_fluxccl_benchmarks_LaunchLoop_replay(
    void *env, void *type, int64_t graph, int64_t stream, int64_t launches, uint8_t each, int64_t nanos) {
  (void)env;
  (void)type;
  LaunchGraph launch = (LaunchGraph)driver_function("cuGraphLaunch");
  Synchronize synchronize = (Synchronize)driver_function("cuStreamSynchronize");
  if (launch == NULL || synchronize == NULL) {
    return -1;
  }
  void *on = (void *)(intptr_t)stream;
  int64_t *times = (int64_t *)(intptr_t)nanos;
  int result = 0;
  int64_t start = now();
  for (int64_t i = 0; i < launches && result == 0; i++) {
    result = launch((void *)(intptr_t)graph, on);
    if (result == 0 && (each || i == launches - 1)) {
      result = synchronize(on);
    }
    int64_t end = now();
    times[i] = end - start;
    start = end;
  }
  return result;
}
