// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of libnccl-net-fluxccl.so. Only versions.c uses NCCL's interface.
#ifndef FLUXCCL_NCCLNET_H
#define FLUXCCL_NCCLNET_H

#include <jni.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// NCCL's results.
enum {
  RESULT_SUCCESS = 0,
  RESULT_SYSTEM_ERROR = 2,
  RESULT_INTERNAL_ERROR = 3,
  RESULT_INVALID_USAGE = 5,
};

// NCCL's logger: level, kind of message, file or function, line, printf's format.
typedef void (*logger)(int level, unsigned long flags, const char *where, int line, const char *format, ...);

// log.c
void log_to(logger target);
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

// paths.c: all functions return malloc'ed text, or NULL.
char *path_of_this_library(void);
char *class_path(void);
// The JVM's library; *tried is a malloc'ed list of the places that were searched.
char *jvm_library(char **tried);
// The Java version of a JVM's library; 0 if unknown.
int java_version(const char *jvm_library);

// jvm.c: the static methods of NetPluginExport.
struct java_methods {
  jclass class;
  jmethodID open, release, properties, listen, connect, accept, register_memory, register_dma_buf, deregister,
      isend, irecv, iflush, test, close, close_listen;
};
extern struct java_methods java;

// Finds the running JVM or starts one, once. After a failure, all later calls fail.
int jvm_start(void);
// Whether the JVM has started, with FluxCCL's classes.
bool jvm_is_started(void);
// This thread's JNIEnv, or NULL if the JVM never started or this is a forked child.
JNIEnv *jvm_env(void);
// The result of a call into Java; -code if an exception escaped it.
long jvm_result(JNIEnv *env, long result);

// create.c
typedef jint (*create_jvm)(JavaVM **, void **, void *);
enum { CREATE_HOOKS = 3 };
// Creates a JVM; returns NULL, and what it said in one line, if it refuses. The first CREATE_HOOKS options are filled
// in here. The options stay in use: they must never be freed.
JavaVM *create_on_a_thread(create_jvm create, JavaVMOption *options, int count, char *problem, size_t size);

// As PropertiesDescriptor.java writes them.
struct fluxccl_properties {
  uint64_t guid;
  uint64_t max_bytes;
  int32_t pointers;
  int32_t reg_is_global;
  int32_t force_flush;
  int32_t speed;
  int32_t port;
  float latency;
  int32_t max_comms;
  int32_t max_recvs;
  char name[128];
  char pci_path[512];
};
_Static_assert(offsetof(struct fluxccl_properties, name) == 48, "PropertiesDescriptor.NAME");
_Static_assert(sizeof(struct fluxccl_properties) == 688, "PropertiesDescriptor");

// calls.c: NCCL's calls, independent of the interface version. Each returns a result of NCCL.
int net_init(logger target);
int net_finalize(void);
int net_devices(int *count);
// Stays valid forever; NULL with *result set on failure.
const struct fluxccl_properties *net_properties(int device, int *result);
int net_listen(int device, void *handle, void **listener);
int net_connect(int device, void *handle, void **comm);
int net_accept(void *listener, void **comm);
int net_register(void *comm, void *data, size_t size, int type, void **memory);
int net_register_dma_buf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **memory);
int net_deregister(void *comm, void *memory);
int net_isend(void *comm, void *data, size_t size, int tag, void *memory, void **request);
int net_irecv(void *comm, int n, void **data, const void *sizes, bool wide, int *tags, void **memories, void **request);
int net_iflush(void *comm, int n, void **data, const int *sizes, void **memories, void **request);
int net_test(void *request, int *done, int *sizes);
int net_close(void *comm);
int net_close_listen(void *listener);

#endif
