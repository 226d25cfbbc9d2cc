// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of libdisni. */
#ifndef FLUXCCL_DISNI_H
#define FLUXCCL_DISNI_H

#include <errno.h>
#include <jni.h>
#include <stdint.h>

/* DiSNI passes objects as their addresses. */
#define POINTER(type, address) ((type *)(uintptr_t)(address))
#define ADDRESS(pointer) ((jlong)(uintptr_t)(pointer))

/* Throws IOException("what: the system's message (errno n)"). */
void fluxccl_throw_io(JNIEnv *env, const char *what, int error);

#endif
