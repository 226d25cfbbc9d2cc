/* Functions that DiSNI lacks: the native methods of io.fluxccl.transport.ib.disni.CmCalls. */
#include "disni.h"

#include <poll.h>

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_io_fluxccl_transport_ib_disni_CmCalls_##name

/* Returns the bytes that a connection request carried. */
NATIVE(jbyteArray, privateData)(JNIEnv *env, jclass type, jlong id) {
  (void)type;
  struct fluxccl_id *context = POINTER(struct rdma_cm_id, id)->context;
  jbyteArray bytes = (*env)->NewByteArray(env, context->private_data_length);
  if (bytes != NULL) {
    (*env)->SetByteArrayRegion(env, bytes, 0, context->private_data_length,
                               (const jbyte *)context->private_data);
  }
  return bytes;
}

/* Returns the status of the last event of an id: a negative errno, a reason of the peer, or 0. */
NATIVE(jint, status)(JNIEnv *env, jclass type, jlong id) {
  (void)env;
  (void)type;
  return ((struct fluxccl_id *)POINTER(struct rdma_cm_id, id)->context)->status;
}

/* Called before connecting or accepting: a packet is sent again after 4.096 us * 2^exponent. */
NATIVE(void, setAckTimeout)(JNIEnv *env, jclass type, jlong id, jbyte exponent) {
  (void)type;
  uint8_t value = (uint8_t)exponent;
  if (rdma_set_option(POINTER(struct rdma_cm_id, id), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                      &value, sizeof value) != 0) {
    fluxccl_throw_io(env, "rdma_set_option(ACK_TIMEOUT)", errno);
  }
}

/* Rejects a connection request; the caller still has to destroy the id. */
NATIVE(void, reject)(JNIEnv *env, jclass type, jlong id) {
  (void)type;
  if (rdma_reject(POINTER(struct rdma_cm_id, id), NULL, 0) != 0) {
    fluxccl_throw_io(env, "rdma_reject", errno);
  }
}

/* Returns whether a channel has an event. Unlike DiSNI's check, it allocates nothing. */
NATIVE(jboolean, hasEvent)(JNIEnv *env, jclass type, jlong channel) {
  (void)env;
  (void)type;
  struct pollfd ready = {.fd = POINTER(struct rdma_event_channel, channel)->fd, .events = POLLIN};
  return poll(&ready, 1, 0) > 0 ? JNI_TRUE : JNI_FALSE;
}
