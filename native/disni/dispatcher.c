/*
 * The native methods of com.ibm.disni.verbs.impl.NativeDispatcher over librdmacm and libibverbs.
 * Off-heap arguments are the C structs themselves, by address. This code keeps no state except what
 * is attached to an rdma_cm id. It takes no lock, and waits only where a caller passes a time to
 * wait.
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

/* One-sided reads in flight that a peer may request; no more than any device allows. */
#define READS_IN_FLIGHT 1

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

/* Throws if a call of librdmacm failed: most of them return -1 and set errno. */
static void check(JNIEnv *env, const char *what, int result) {
  if (result != 0) {
    fluxccl_throw_io(env, what, errno);
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

/* ---- connection management ---- */

NATIVE(jlong, createEventChannel)(JNIEnv *env, jobject self) {
  (void)self;
  struct rdma_event_channel *channel = rdma_create_event_channel();
  if (channel != NULL) {
    /* So that a check of a channel without events never waits. */
    int flags = fcntl(channel->fd, F_GETFL);
    fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
  }
  return object(env, "rdma_create_event_channel", channel);
}

NATIVE(jint, destroyEventChannel)(JNIEnv *env, jobject self, jlong channel) {
  (void)env;
  (void)self;
  rdma_destroy_event_channel(POINTER(struct rdma_event_channel, channel));
  return 0;
}

NATIVE(jlong, createId)(JNIEnv *env, jobject self, jlong channel, jshort port_space) {
  (void)self;
  struct fluxccl_id *context = calloc(1, sizeof *context);
  if (context == NULL) {
    fluxccl_throw_io(env, "rdma_create_id", ENOMEM);
    return -1;
  }
  struct rdma_cm_id *id = NULL;
  if (rdma_create_id(POINTER(struct rdma_event_channel, channel), &id, context,
                     (enum rdma_port_space)port_space) != 0) {
    int error = errno;
    free(context);
    fluxccl_throw_io(env, "rdma_create_id", error);
    return -1;
  }
  return ADDRESS(id);
}

NATIVE(jint, destroyCmId)(JNIEnv *env, jobject self, jlong id) {
  (void)env;
  (void)self;
  struct rdma_cm_id *cm_id = POINTER(struct rdma_cm_id, id);
  void *context = cm_id->context;
  int result = rdma_destroy_id(cm_id);
  free(context);
  return result;
}

NATIVE(jint, destroyEp)(JNIEnv *env, jobject self, jlong id) {
  (void)env;
  (void)self;
  struct rdma_cm_id *cm_id = POINTER(struct rdma_cm_id, id);
  void *context = cm_id->context;
  rdma_destroy_ep(cm_id);
  free(context);
  return 0;
}

NATIVE(void, bindAddr)(JNIEnv *env, jobject self, jlong id, jlong address) {
  (void)self;
  check(env, "rdma_bind_addr",
        rdma_bind_addr(POINTER(struct rdma_cm_id, id), POINTER(struct sockaddr, address)));
}

NATIVE(void, listen)(JNIEnv *env, jobject self, jlong id, jint backlog) {
  (void)self;
  check(env, "rdma_listen", rdma_listen(POINTER(struct rdma_cm_id, id), backlog));
}

NATIVE(void, resolveAddr)(JNIEnv *env, jobject self, jlong id, jlong source, jlong target,
                          jint timeout_ms) {
  (void)self;
  check(env, "rdma_resolve_addr",
        rdma_resolve_addr(POINTER(struct rdma_cm_id, id), POINTER(struct sockaddr, source),
                          POINTER(struct sockaddr, target), timeout_ms));
}

NATIVE(void, resolveRoute)(JNIEnv *env, jobject self, jlong id, jint timeout_ms) {
  (void)self;
  check(env, "rdma_resolve_route",
        rdma_resolve_route(POINTER(struct rdma_cm_id, id), timeout_ms));
}

/* Keeps the data of a request after its event, which is acknowledged at once. */
static int adopt(struct rdma_cm_event *event) {
  struct fluxccl_id *context = calloc(1, sizeof *context);
  if (context == NULL) {
    return ENOMEM;
  }
  if (event->param.conn.private_data != NULL) {
    int length = event->param.conn.private_data_len;
    context->private_data_length =
        length < FLUXCCL_PRIVATE_DATA_MAX ? length : FLUXCCL_PRIVATE_DATA_MAX;
    memcpy(context->private_data, event->param.conn.private_data,
           (size_t)context->private_data_length);
  }
  event->id->context = context;
  return 0;
}

/*
 * Returns the kind of the next event, or -1 if there is none within the time. Stores the addresses
 * of the listening id and of the id that the event concerns.
 */
NATIVE(jint, getCmEvent)(JNIEnv *env, jobject self, jlong channel, jlong listen_id, jlong client_id,
                         jint timeout_ms) {
  (void)env;
  (void)self;
  struct rdma_event_channel *events = POINTER(struct rdma_event_channel, channel);
  struct pollfd ready = {.fd = events->fd, .events = POLLIN};
  if (poll(&ready, 1, timeout_ms) <= 0) {
    return -1;
  }
  struct rdma_cm_event *event = NULL;
  if (rdma_get_cm_event(events, &event) != 0) {
    return -1;
  }
  int kind = (int)event->event;
  struct rdma_cm_id *id = event->id;
  *POINTER(int64_t, listen_id) = (int64_t)(uintptr_t)event->listen_id;
  *POINTER(int64_t, client_id) = (int64_t)(uintptr_t)id;
  if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
    if (adopt(event) != 0) {
      /* Without memory for its data the request is rejected, and its peer is notified. */
      rdma_reject(id, NULL, 0);
      rdma_ack_cm_event(event);
      rdma_destroy_id(id);
      return -1;
    }
  } else if (id != NULL && id->context != NULL) {
    ((struct fluxccl_id *)id->context)->status = event->status;
  }
  /* Acknowledged here, so that destroying an id never waits for an event of it. */
  rdma_ack_cm_event(event);
  return kind;
}

NATIVE(jint, ackCmEvent)(JNIEnv *env, jobject self, jint event) {
  (void)env;
  (void)self;
  (void)event;
  return 0; /* done by getCmEvent */
}

static struct rdma_conn_param connection_parameters(jint retries, jint not_ready_retries) {
  struct rdma_conn_param parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.responder_resources = READS_IN_FLIGHT;
  parameters.initiator_depth = READS_IN_FLIGHT;
  parameters.retry_count = (uint8_t)retries;
  parameters.rnr_retry_count = (uint8_t)not_ready_retries;
  return parameters;
}

NATIVE(void, connect)(JNIEnv *env, jobject self, jlong id, jint retries, jint not_ready_retries,
                      jlong private_data, jbyte private_data_length) {
  (void)self;
  struct rdma_conn_param parameters = connection_parameters(retries, not_ready_retries);
  parameters.private_data = POINTER(void, private_data);
  parameters.private_data_len = (uint8_t)private_data_length;
  check(env, "rdma_connect", rdma_connect(POINTER(struct rdma_cm_id, id), &parameters));
}

NATIVE(void, accept)(JNIEnv *env, jobject self, jlong id, jint retries, jint not_ready_retries) {
  (void)self;
  struct rdma_conn_param parameters = connection_parameters(retries, not_ready_retries);
  check(env, "rdma_accept", rdma_accept(POINTER(struct rdma_cm_id, id), &parameters));
}

NATIVE(jint, disconnect)(JNIEnv *env, jobject self, jlong id) {
  (void)env;
  (void)self;
  return rdma_disconnect(POINTER(struct rdma_cm_id, id));
}

static jint copy_address(const struct sockaddr *address, jlong target) {
  if (address == NULL || address->sa_family != AF_INET) {
    return -1;
  }
  memcpy(POINTER(void, target), address, sizeof(struct sockaddr_in));
  return 0;
}

NATIVE(jint, getSrcAddr)(JNIEnv *env, jobject self, jlong id, jlong target) {
  (void)env;
  (void)self;
  return copy_address(rdma_get_local_addr(POINTER(struct rdma_cm_id, id)), target);
}

NATIVE(jint, getDstAddr)(JNIEnv *env, jobject self, jlong id, jlong target) {
  (void)env;
  (void)self;
  return copy_address(rdma_get_peer_addr(POINTER(struct rdma_cm_id, id)), target);
}

/* The device that the id is bound to; 0 while it is bound to none. */
NATIVE(jlong, getContext)(JNIEnv *env, jobject self, jlong id) {
  (void)self;
  struct ibv_context *context = POINTER(struct rdma_cm_id, id)->verbs;
  if (context == NULL) {
    fluxccl_throw_io(env, "the id's address belongs to no RDMA device", ENODEV);
    return -1;
  }
  return ADDRESS(context);
}

/* ---- queue pairs ---- */

NATIVE(jlong, createQP)(JNIEnv *env, jobject self, jlong id, jlong domain, jlong send_queue,
                        jlong receive_queue, jint type, jint max_send, jint max_receive,
                        jint max_inline) {
  (void)self;
  struct ibv_qp_init_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.send_cq = POINTER(struct ibv_cq, send_queue);
  attributes.recv_cq = POINTER(struct ibv_cq, receive_queue);
  attributes.qp_type = (enum ibv_qp_type)type;
  attributes.cap.max_send_wr = (uint32_t)max_send;
  attributes.cap.max_recv_wr = (uint32_t)max_receive;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = (uint32_t)max_inline;
  struct rdma_cm_id *cm_id = POINTER(struct rdma_cm_id, id);
  if (rdma_create_qp(cm_id, POINTER(struct ibv_pd, domain), &attributes) != 0) {
    fluxccl_throw_io(env, "rdma_create_qp", errno);
    return -1;
  }
  return ADDRESS(cm_id->qp);
}

NATIVE(jint, destroyQP)(JNIEnv *env, jobject self, jlong id) {
  (void)env;
  (void)self;
  rdma_destroy_qp(POINTER(struct rdma_cm_id, id));
  return 0;
}

NATIVE(jint, modifyQP)(JNIEnv *env, jobject self, jlong queue_pair, jlong attributes) {
  (void)self;
  (void)queue_pair;
  (void)attributes;
  unsupported(env, "modifyQP: rdma_cm moves queue pairs from state to state");
  return -1;
}

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
