// SPDX-License-Identifier: Apache-2.0
/*
 * Functions that DiSNI lacks: devices by index, ports, queue pairs that are connected by addresses
 * which the caller exchanged, and dma-bufs. The native methods of
 * io.fluxccl.transport.ib.disni.VerbsCalls.
 */
#define _GNU_SOURCE
#include "disni.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <string.h>

#define NATIVE(type, name) \
  JNIEXPORT type JNICALL Java_io_fluxccl_transport_ib_disni_VerbsCalls_##name

/* One-sided reads in flight that a peer may request: none is, and no device allows fewer. */
#define READS_IN_FLIGHT 1

/* The code of 0.64 ms. Requests that find no receive wait that long; none of ours needs one. */
#define RECEIVER_NOT_READY_TIMER 12

/* Routers that a packet may pass. */
#define HOP_LIMIT 255

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* Throws if a call that returns its errno has failed. Returns whether it has not. */
static int check(JNIEnv *env, const char *what, int error) {
  if (error != 0) {
    fluxccl_throw_io(env, what, error);
  }
  return error == 0;
}

/* ---- devices and ports ---- */

/* Returns the names of the devices in the order of ibv_get_device_list. */
NATIVE(jobjectArray, deviceNames)(JNIEnv *env, jclass type) {
  (void)type;
  int count = 0;
  struct ibv_device **devices = ibv_get_device_list(&count);
  if (devices == NULL) {
    fluxccl_throw_io(env, "ibv_get_device_list", errno);
    return NULL;
  }
  jclass string = (*env)->FindClass(env, "java/lang/String");
  jobjectArray names = string == NULL ? NULL : (*env)->NewObjectArray(env, count, string, NULL);
  for (int i = 0; names != NULL && i < count; i++) {
    jstring name = (*env)->NewStringUTF(env, ibv_get_device_name(devices[i]));
    if (name == NULL) {
      break;
    }
    (*env)->SetObjectArrayElement(env, names, i, name);
    (*env)->DeleteLocalRef(env, name);
  }
  ibv_free_device_list(devices);
  return names;
}

/* Returns the context of the device with that name. */
NATIVE(jlong, openDevice)(JNIEnv *env, jclass type, jstring name) {
  (void)type;
  const char *wanted = (*env)->GetStringUTFChars(env, name, NULL);
  if (wanted == NULL) {
    return -1;
  }
  struct ibv_context *context = NULL;
  int error = ENODEV;
  int count = 0;
  struct ibv_device **devices = ibv_get_device_list(&count);
  for (int i = 0; devices != NULL && i < count; i++) {
    if (strcmp(ibv_get_device_name(devices[i]), wanted) == 0) {
      context = ibv_open_device(devices[i]);
      error = errno;
      break;
    }
  }
  if (devices != NULL) {
    ibv_free_device_list(devices);
  }
  (*env)->ReleaseStringUTFChars(env, name, wanted);
  if (context == NULL) {
    fluxccl_throw_io(env, "ibv_open_device", error);
    return -1;
  }
  return ADDRESS(context);
}

NATIVE(void, closeDevice)(JNIEnv *env, jclass type, jlong context) {
  (void)type;
  if (ibv_close_device(POINTER(struct ibv_context, context)) != 0) {
    fluxccl_throw_io(env, "ibv_close_device", errno);
  }
}

/* Stores a port's link layer, LID and active MTU, as verbs encode them. */
NATIVE(void, queryPort)(JNIEnv *env, jclass type, jlong context, jint port, jintArray result) {
  (void)type;
  struct ibv_port_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  if (check(env, "ibv_query_port",
            ibv_query_port(POINTER(struct ibv_context, context), (uint8_t)port, &attributes))) {
    jint values[] = {attributes.link_layer, attributes.lid, (jint)attributes.active_mtu};
    (*env)->SetIntArrayRegion(env, result, 0, 3, values);
  }
}

/* ---- queue pairs ---- */

/* Creates a reliable queue pair in the state INIT, in which the device drops what peers send. */
NATIVE(jlong, createQueuePair)(JNIEnv *env, jclass type, jlong domain, jlong completions,
                               jint port, jint max_send, jint max_inline) {
  (void)type;
  struct ibv_qp_init_attr init;
  memset(&init, 0, sizeof init);
  init.send_cq = POINTER(struct ibv_cq, completions);
  init.recv_cq = POINTER(struct ibv_cq, completions);
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = (uint32_t)max_send;
  init.cap.max_recv_wr = 1;
  init.cap.max_send_sge = 1;
  init.cap.max_recv_sge = 1;
  init.cap.max_inline_data = (uint32_t)max_inline;
  struct ibv_qp *pair = ibv_create_qp(POINTER(struct ibv_pd, domain), &init);
  if (pair == NULL) {
    fluxccl_throw_io(env, "ibv_create_qp", errno);
    return -1;
  }
  struct ibv_qp_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = (uint8_t)port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  int error = ibv_modify_qp(
      pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) {
    ibv_destroy_qp(pair);
    fluxccl_throw_io(env, "ibv_modify_qp(INIT)", error);
    return -1;
  }
  return ADDRESS(pair);
}

/*
 * Moves a queue pair to RTR: from now on it executes what its peer sends.
 *
 * lid         of the peer's port; 0 on Ethernet
 * gid_index   of this port's GID, from which packets come; -1 to send by LID alone
 * gid         16 bytes, of the peer's port; null with gid_index -1
 */
NATIVE(void, readyToReceive)(JNIEnv *env, jclass type, jlong pair, jint port, jint mtu,
                             jint peer_number, jint packet_number, jint lid, jint gid_index,
                             jbyteArray gid) {
  (void)type;
  struct ibv_qp_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = (enum ibv_mtu)mtu;
  attributes.dest_qp_num = (uint32_t)peer_number;
  attributes.rq_psn = (uint32_t)packet_number;
  attributes.max_dest_rd_atomic = READS_IN_FLIGHT;
  attributes.min_rnr_timer = RECEIVER_NOT_READY_TIMER;
  attributes.ah_attr.dlid = (uint16_t)lid;
  attributes.ah_attr.port_num = (uint8_t)port;
  if (gid_index >= 0) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.sgid_index = (uint8_t)gid_index;
    attributes.ah_attr.grh.hop_limit = HOP_LIMIT;
    (*env)->GetByteArrayRegion(env, gid, 0, sizeof attributes.ah_attr.grh.dgid.raw,
                               (jbyte *)attributes.ah_attr.grh.dgid.raw);
    if ((*env)->ExceptionCheck(env)) {
      return;
    }
  }
  check(env, "ibv_modify_qp(RTR)",
        ibv_modify_qp(POINTER(struct ibv_qp, pair), &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

/*
 * Moves a queue pair to RTS: from now on it sends. A packet that is not acknowledged within
 * 4.096 us * 2^timeout is sent again.
 */
NATIVE(void, readyToSend)(JNIEnv *env, jclass type, jlong pair, jint packet_number, jint timeout,
                          jint retries, jint not_ready_retries) {
  (void)type;
  struct ibv_qp_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = (uint32_t)packet_number;
  attributes.timeout = (uint8_t)timeout;
  attributes.retry_cnt = (uint8_t)retries;
  attributes.rnr_retry = (uint8_t)not_ready_retries;
  attributes.max_rd_atomic = READS_IN_FLIGHT;
  check(env, "ibv_modify_qp(RTS)",
        ibv_modify_qp(POINTER(struct ibv_qp, pair), &attributes,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

NATIVE(void, destroyQueuePair)(JNIEnv *env, jclass type, jlong pair) {
  (void)type;
  check(env, "ibv_destroy_qp", ibv_destroy_qp(POINTER(struct ibv_qp, pair)));
}

/* ---- dma-bufs ---- */

typedef struct ibv_mr *(*register_function)(struct ibv_pd *, uint64_t offset, size_t length,
                                            uint64_t address, int descriptor, int access);

/* Looked up, because libibverbs before 34 has no such function and still serves all else. */
static register_function register_dma_buf(void) {
  void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  register_function found = NULL;
  if (library != NULL) {
    *(void **)&found = dlsym(library, "ibv_reg_dmabuf_mr");
    dlclose(library); /* it stays, because this library needs it */
  }
  return found;
}

/* Returns the errno with which the device refuses a dma-buf that does not exist. */
NATIVE(jint, probeDmaBuf)(JNIEnv *env, jclass type, jlong domain) {
  (void)env;
  (void)type;
  register_function call = register_dma_buf();
  if (call == NULL) {
    return ENOSYS;
  }
  struct ibv_mr *region = call(POINTER(struct ibv_pd, domain), 0, 4096, 0, -1, ACCESS);
  if (region != NULL) {
    ibv_dereg_mr(region);
    return 0;
  }
  return errno;
}

/*
 * Registers a part of a dma-buf, which requests then name by an address. Stores the local and the
 * remote key. The descriptor stays the caller's.
 */
NATIVE(jlong, registerDmaBuf)(JNIEnv *env, jclass type, jlong domain, jint descriptor, jlong offset,
                              jlong length, jlong address, jintArray keys) {
  (void)type;
  register_function call = register_dma_buf();
  if (call == NULL) {
    fluxccl_throw_io(env, "ibv_reg_dmabuf_mr", ENOSYS);
    return -1;
  }
  struct ibv_mr *region =
      call(POINTER(struct ibv_pd, domain), (uint64_t)offset, (size_t)length, (uint64_t)address,
           descriptor, ACCESS);
  if (region == NULL) {
    fluxccl_throw_io(env, "ibv_reg_dmabuf_mr", errno);
    return -1;
  }
  jint both[] = {(jint)region->lkey, (jint)region->rkey};
  (*env)->SetIntArrayRegion(env, keys, 0, 2, both);
  return ADDRESS(region);
}

NATIVE(void, deregister)(JNIEnv *env, jclass type, jlong region) {
  (void)type;
  check(env, "ibv_dereg_mr", ibv_dereg_mr(POINTER(struct ibv_mr, region)));
}
