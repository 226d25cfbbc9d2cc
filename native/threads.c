// SPDX-License-Identifier: Apache-2.0
/* The CPUs on which the calling thread may run. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "jni_support.h"

/* CPU n is bit n % 64 of word n / 64. */
enum { MASK_WORDS = 128 };
_Static_assert(sizeof(jlong) == sizeof(unsigned long), "a mask's word is an unsigned long");

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_ThreadPlacement_getAffinity(
    JNIEnv *env, jclass type, jlongArray mask) {
  (void)type;
  jlong words[MASK_WORDS];
  memset(words, 0, sizeof words);
  if ((*env)->GetArrayLength(env, mask) != MASK_WORDS) {
    return -EINVAL;
  }
  if (sched_getaffinity(0, sizeof words, (cpu_set_t *)words) != 0) {
    return -errno;
  }
  (*env)->SetLongArrayRegion(env, mask, 0, MASK_WORDS, words);
  return 0;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_ThreadPlacement_setAffinity(
    JNIEnv *env, jclass type, jlongArray mask) {
  (void)type;
  jlong words[MASK_WORDS];
  if ((*env)->GetArrayLength(env, mask) != MASK_WORDS) {
    return -EINVAL;
  }
  (*env)->GetLongArrayRegion(env, mask, 0, MASK_WORDS, words);
  return sched_setaffinity(0, sizeof words, (const cpu_set_t *)words) == 0 ? 0 : -errno;
}
