// SPDX-License-Identifier: Apache-2.0
/* Small helpers for JNI that every file here uses. */
#ifndef FLUXCCL_JNI_SUPPORT_H
#define FLUXCCL_JNI_SUPPORT_H

#include <jni.h>

/* Stores one number into the first element of an array that Java passed for a result. */
static inline void put_long(JNIEnv *env, jlongArray target, jlong value) {
  (*env)->SetLongArrayRegion(env, target, 0, 1, &value);
}

static inline void put_int(JNIEnv *env, jintArray target, jint value) {
  (*env)->SetIntArrayRegion(env, target, 0, 1, &value);
}

/* Throws OutOfMemoryError; the caller returns at once. */
void fluxccl_throw_out_of_memory(JNIEnv *env);

/*
 * Returns a copy of the array's bytes with a NUL after them, to be freed; NULL with an exception
 * pending.
 */
char *fluxccl_copy_bytes(JNIEnv *env, jbyteArray bytes);

/* Returns a new Java array of these bytes; NULL with an exception pending. */
jbyteArray fluxccl_new_bytes(JNIEnv *env, const void *bytes, size_t length);

#endif
