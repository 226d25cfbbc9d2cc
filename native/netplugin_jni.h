// SPDX-License-Identifier: Apache-2.0
/* Declarations for the calls of network plugins and of collective networks. */
#ifndef FLUXCCL_NETPLUGIN_JNI_H
#define FLUXCCL_NETPLUGIN_JNI_H

#include <jni.h>

#include "netplugin_abi.h"

enum { NET_PROPERTY_NUMBERS = 10 };

typedef struct {
  const char *name;
  const char *pciPath;
  /* guid, pointers, global, flush, speed, port, latency in ns, comms, receives, bytes */
  jlong numbers[NET_PROPERTY_NUMBERS];
} NetReadProperties;

static inline void *pointer_of(jlong address) { return (void *)(intptr_t)address; }

/* As NCCL interprets results: any other number is an error, too. */
static inline jint result_of(int result) {
  return result >= 0 && result < 256 ? result : NET_INTERNAL_ERROR;
}

/*
 * Converts a call's outcome. Negative numbers are failed results, because no pointer is negative.
 */
static inline jlong pointer_or_error(int result, void *pointer) {
  return result == NET_SUCCESS ? (jlong)(intptr_t)pointer : -(jlong)result_of(result);
}

/* A device's properties: name and path, which may be null, and NET_PROPERTY_NUMBERS numbers. */
jint fluxccl_net_properties(JNIEnv *env, int version, NetGetProperties get_properties, int device,
                            jobjectArray texts, jlongArray numbers);

#endif
