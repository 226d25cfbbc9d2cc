// SPDX-License-Identifier: Apache-2.0
/* The properties of a device of a network plugin, of any version. */
#include <stdint.h>
#include <string.h>

#include "jni_support.h"
#include "netplugin_jni.h"

/* The largest size for old plugins: sizes were ints, and NCCL uses the largest power of two. */
static const jlong OLD_MAX_BYTES = 1L << 30;

#define COMMON(from, to)                      \
  do {                                        \
    (to)->name = (from)->name;                \
    (to)->pciPath = (from)->pciPath;          \
    (to)->numbers[0] = (jlong)(from)->guid;   \
    (to)->numbers[1] = (from)->ptrSupport;    \
    (to)->numbers[4] = (from)->speed;         \
    (to)->numbers[5] = (from)->port;          \
    (to)->numbers[6] = (jlong)((double)(from)->latency * 1000.0); \
    (to)->numbers[7] = (from)->maxComms;      \
    (to)->numbers[8] = (from)->maxRecvs;      \
  } while (0)

static int read_properties(int version, NetGetProperties get_properties, int device,
                           NetReadProperties *to) {
  /*
   * Zeros for fields that a plugin does not set, and room for a plugin that writes a later
   * version's struct.
   */
  union {
    NetProperties7 of7;
    NetProperties8 of8;
    NetProperties11 of11;
    NetProperties12 of12;
    char room[512];
  } from;
  memset(&from, 0, sizeof from);
  int result = get_properties(device, &from);
  if (result != NET_SUCCESS) {
    return result;
  }
  to->numbers[9] = OLD_MAX_BYTES;
  if (version <= 7) {
    COMMON(&from.of7, to);
  } else if (version == 8) {
    COMMON(&from.of8, to);
    to->numbers[2] = from.of8.regIsGlobal;
  } else if (version <= 11) {
    COMMON(&from.of11, to);
    to->numbers[2] = from.of11.regIsGlobal;
    to->numbers[3] = from.of11.forceFlush;
    to->numbers[9] = (jlong)from.of11.maxP2pBytes;
  } else {
    COMMON(&from.of12, to);
    to->numbers[2] = from.of12.regIsGlobal;
    to->numbers[3] = from.of12.forceFlush;
    to->numbers[9] = (jlong)from.of12.maxP2pBytes;
  }
  return result;
}

static void put_text(JNIEnv *env, jobjectArray texts, int index, const char *text) {
  jbyteArray bytes = text == NULL ? NULL : fluxccl_new_bytes(env, text, strlen(text));
  if (!(*env)->ExceptionCheck(env)) {
    (*env)->SetObjectArrayElement(env, texts, index, bytes);
  }
}

jint fluxccl_net_properties(JNIEnv *env, int version, NetGetProperties get_properties, int device,
                            jobjectArray texts, jlongArray numbers) {
  NetReadProperties properties;
  memset(&properties, 0, sizeof properties);
  int result = read_properties(version, get_properties, device, &properties);
  if (result == NET_SUCCESS) {
    put_text(env, texts, 0, properties.name);
    put_text(env, texts, 1, properties.pciPath);
    (*env)->SetLongArrayRegion(env, numbers, 0, NET_PROPERTY_NUMBERS, properties.numbers);
  }
  return result_of(result);
}
