/* Shared by the files of libdisni: errors, and the data that is kept for an rdma_cm id. */
#ifndef FLUXCCL_DISNI_H
#define FLUXCCL_DISNI_H

#include <errno.h>
#include <jni.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

/* The most bytes that a connection request over RDMA_PS_TCP can carry. */
#define FLUXCCL_PRIVATE_DATA_MAX 56

/*
 * Attached to rdma_cm_id.context of every id that this library created or received with a request.
 */
struct fluxccl_id {
  int status; /* of the last event that concerned this id */
  int private_data_length;
  uint8_t private_data[FLUXCCL_PRIVATE_DATA_MAX];
};

/* DiSNI passes objects as their addresses. */
#define POINTER(type, address) ((type *)(uintptr_t)(address))
#define ADDRESS(pointer) ((jlong)(uintptr_t)(pointer))

/* Throws IOException("what: the system's message (errno n)"). */
void fluxccl_throw_io(JNIEnv *env, const char *what, int error);

#endif
