/* What the files of libdisni share: errors, and what it remembers of an rdma_cm id. */
#ifndef FLUXCCL_DISNI_H
#define FLUXCCL_DISNI_H

#include <errno.h>
#include <jni.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

/* Most that a connection request over RDMA_PS_TCP can carry. */
#define FLUXCCL_PRIVATE_DATA_MAX 56

/* Hangs at rdma_cm_id.context of every id that this library made or got by a request. */
struct fluxccl_id {
  int status; /* of the last event that was about this id */
  int private_data_length;
  uint8_t private_data[FLUXCCL_PRIVATE_DATA_MAX];
};

/* DiSNI hands objects about as their addresses. */
#define POINTER(type, address) ((type *)(uintptr_t)(address))
#define ADDRESS(pointer) ((jlong)(uintptr_t)(pointer))

/* Throws IOException("what: the system's words (errno n)"). */
void fluxccl_throw_io(JNIEnv *env, const char *what, int error);

#endif
