// SPDX-License-Identifier: Apache-2.0
/*
 * The native methods of com.ibm.disni.verbs.impl.NativeDispatcher over libibverbs, except those of
 * rdma_cm, which nothing calls. Off-heap arguments are the C structs themselves, by address. This
 * code keeps no state. It takes no lock, and waits only where a caller passes a time to wait.
 */
#define _GNU_SOURCE
#include "disni.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NATIVE(type, name) \
  JNIEXPORT type JNICALL Java_com_ibm_disni_verbs_impl_NativeDispatcher__1##name

/* The version that DiSNI 2.1 expects. */
#define DISNI_VERSION 32

void fluxccl_throw_io(JNIEnv *env, const char *what, int error) {
  char buffer[128];
  char message[256];
  /* The GNU strerror_r: returns the text, which may lie outside the buffer. */
  snprintf(message, sizeof message, "%s: %s (errno %d)", what,
           strerror_r(error, buffer, sizeof buffer), error);
  jclass type = (*env)->FindClass(env, "java/io/IOException");
  if (type != NULL) {
    (*env)->ThrowNew(env, type, message);
  }
}

/* Returns the address of a new object, or throws. */
static jlong object(JNIEnv *env, const char *what, const void *made) {
  if (made == NULL) {
    fluxccl_throw_io(env, what, errno);
    return -1;
  }
  return ADDRESS(made);
}

static void unsupported(JNIEnv *env, const char *what) {
  fluxccl_throw_io(env, what, ENOTSUP);
}

/* ---- queue pairs ---- */

NATIVE(jint, getQpNum)(JNIEnv *env, jobject self, jlong queue_pair) {
  (void)env;
  (void)self;
  return (jint)POINTER(struct ibv_qp, queue_pair)->qp_num;
}

NATIVE(void, postSend)(JNIEnv *env, jobject self, jlong queue_pair, jlong requests) {
  (void)self;
  struct ibv_send_wr *refused = NULL;
  int error = ibv_post_send(POINTER(struct ibv_qp, queue_pair),
                            POINTER(struct ibv_send_wr, requests), &refused);
  if (error != 0) {
    fluxccl_throw_io(env, "ibv_post_send", error);
  }
}

NATIVE(void, postRecv)(JNIEnv *env, jobject self, jlong queue_pair, jlong requests) {
  (void)self;
  struct ibv_recv_wr *refused = NULL;
  int error = ibv_post_recv(POINTER(struct ibv_qp, queue_pair),
                            POINTER(struct ibv_recv_wr, requests), &refused);
  if (error != 0) {
    fluxccl_throw_io(env, "ibv_post_recv", error);
  }
}

/* ---- protection domains and memory ---- */

NATIVE(jlong, allocPd)(JNIEnv *env, jobject self, jlong context) {
  (void)self;
  return object(env, "ibv_alloc_pd", ibv_alloc_pd(POINTER(struct ibv_context, context)));
}

NATIVE(jint, deallocPd)(JNIEnv *env, jobject self, jlong domain) {
  (void)env;
  (void)self;
  return ibv_dealloc_pd(POINTER(struct ibv_pd, domain));
}

NATIVE(jint, getPdHandle)(JNIEnv *env, jobject self, jlong domain) {
  (void)env;
  (void)self;
  return (jint)POINTER(struct ibv_pd, domain)->handle;
}

NATIVE(jlong, regMr)(JNIEnv *env, jobject self, jlong domain, jlong address, jint length,
                     jint access, jlong local_key, jlong remote_key, jlong handle) {
  (void)self;
  struct ibv_mr *region = ibv_reg_mr(POINTER(struct ibv_pd, domain), POINTER(void, address),
                                     (size_t)(uint32_t)length, access);
  if (region == NULL) {
    fluxccl_throw_io(env, "ibv_reg_mr", errno);
    return -1;
  }
  *POINTER(uint32_t, local_key) = region->lkey;
  *POINTER(uint32_t, remote_key) = region->rkey;
  *POINTER(uint32_t, handle) = region->handle;
  return ADDRESS(region);
}

NATIVE(void, deregMr)(JNIEnv *env, jobject self, jlong region) {
  (void)self;
  int error = ibv_dereg_mr(POINTER(struct ibv_mr, region));
  if (error != 0) {
    fluxccl_throw_io(env, "ibv_dereg_mr", error);
  }
}

NATIVE(jint, queryOdpSupport)(JNIEnv *env, jobject self, jlong context) {
  (void)env;
  (void)self;
  (void)context;
  return -1; /* DiSNI's word for "none" */
}

NATIVE(jint, expPrefetchMr)(JNIEnv *env, jobject self, jlong region, jlong address, jint length) {
  (void)self;
  (void)region;
  (void)address;
  (void)length;
  unsupported(env, "expPrefetchMr");
  return -1;
}

/* ---- completions ---- */

NATIVE(jlong, createCompChannel)(JNIEnv *env, jobject self, jlong context) {
  (void)self;
  return object(env, "ibv_create_comp_channel",
                ibv_create_comp_channel(POINTER(struct ibv_context, context)));
}

NATIVE(jint, destroyCompChannel)(JNIEnv *env, jobject self, jlong channel) {
  (void)env;
  (void)self;
  return ibv_destroy_comp_channel(POINTER(struct ibv_comp_channel, channel));
}

NATIVE(jlong, createCQ)(JNIEnv *env, jobject self, jlong context, jlong channel, jint entries,
                        jint vector) {
  (void)self;
  return object(env, "ibv_create_cq",
                ibv_create_cq(POINTER(struct ibv_context, context), entries, NULL,
                              POINTER(struct ibv_comp_channel, channel), vector));
}

NATIVE(jint, destroyCQ)(JNIEnv *env, jobject self, jlong queue) {
  (void)env;
  (void)self;
  return ibv_destroy_cq(POINTER(struct ibv_cq, queue));
}

NATIVE(jint, pollCQ)(JNIEnv *env, jobject self, jlong queue, jint most, jlong completions) {
  (void)env;
  (void)self;
  return ibv_poll_cq(POINTER(struct ibv_cq, queue), most, POINTER(struct ibv_wc, completions));
}

NATIVE(jint, reqNotifyCQ)(JNIEnv *env, jobject self, jlong queue, jint solicited_only) {
  (void)env;
  (void)self;
  return ibv_req_notify_cq(POINTER(struct ibv_cq, queue), solicited_only);
}

/* Returns 0 if a queue of the channel has an event within the time, -1 otherwise. */
NATIVE(jint, getCqEvent)(JNIEnv *env, jobject self, jlong channel, jint timeout_ms) {
  (void)env;
  (void)self;
  struct ibv_comp_channel *completions = POINTER(struct ibv_comp_channel, channel);
  struct pollfd ready = {.fd = completions->fd, .events = POLLIN};
  if (poll(&ready, 1, timeout_ms) <= 0) {
    return -1;
  }
  struct ibv_cq *queue = NULL;
  void *context = NULL;
  return ibv_get_cq_event(completions, &queue, &context);
}

NATIVE(jint, ackCqEvent)(JNIEnv *env, jobject self, jlong queue, jint events) {
  (void)env;
  (void)self;
  ibv_ack_cq_events(POINTER(struct ibv_cq, queue), (unsigned int)events);
  return 0;
}

/* ---- what DiSNI queries to check its own layouts ---- */

NATIVE(jint, getContextFd)(JNIEnv *env, jobject self, jlong context) {
  (void)env;
  (void)self;
  return POINTER(struct ibv_context, context)->cmd_fd;
}

NATIVE(jint, getContextNumCompVectors)(JNIEnv *env, jobject self, jlong context) {
  (void)env;
  (void)self;
  return POINTER(struct ibv_context, context)->num_comp_vectors;
}

#define CONSTANT(name, value)                             \
  NATIVE(jint, name)(JNIEnv * env, jobject self) {        \
    (void)env;                                            \
    (void)self;                                           \
    return (jint)(value);                                 \
  }

CONSTANT(getVersion, DISNI_VERSION)
CONSTANT(getSockAddrInSize, sizeof(struct sockaddr_in))
CONSTANT(getIbvRecvWRSize, sizeof(struct ibv_recv_wr))
CONSTANT(getIbvSendWRSize, sizeof(struct ibv_send_wr))
CONSTANT(getIbvSgeSize, sizeof(struct ibv_sge))
CONSTANT(getIbvWCSize, sizeof(struct ibv_wc))
CONSTANT(getRemoteAddressOffset, offsetof(struct ibv_send_wr, wr.rdma.remote_addr))
CONSTANT(getRKeyOffset, offsetof(struct ibv_send_wr, wr.rdma.rkey))
