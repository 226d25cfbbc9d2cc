// SPDX-License-Identifier: Apache-2.0
/*
 * Passes file descriptors between processes over abstract Unix sockets. There is one request and
 * one answer, each a single message (SOCK_SEQPACKET), so that no process ever receives half of one.
 * All sockets are non-blocking; functions wait in poll() with a time limit. Results below 0 are
 * negated errnos.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "jni_support.h"

enum { TOKEN_LENGTH = 16, MAGIC = 0x31445846 /* "FXD1" */ };

typedef struct {
  uint32_t magic;
  unsigned char token[TOKEN_LENGTH];
} Request;

typedef struct {
  uint32_t magic;
  int32_t status;
} Answer;

/* An abstract name has no file: it starts with a NUL and ends with the address's length. */
static socklen_t abstract_address(struct sockaddr_un *address, const char *name) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  size_t length = strnlen(name, sizeof address->sun_path - 1);
  memcpy(address->sun_path + 1, name, length);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int new_socket(void) {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Returns whether the other end is a process of this user. */
static int is_of_this_user(int socket) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

static int close_and_fail(int descriptor, int number) {
  close(descriptor);
  return -number;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_listen(JNIEnv *env, jclass type,
                                                                          jbyteArray name) {
  (void)type;
  char *text = fluxccl_copy_bytes(env, name);
  if (text == NULL) {
    return -ENOMEM;
  }
  struct sockaddr_un address;
  socklen_t length = abstract_address(&address, text);
  free(text);
  int server = new_socket();
  if (server < 0) {
    return -errno;
  }
  if (bind(server, (struct sockaddr *)&address, length) != 0 || listen(server, SOMAXCONN) != 0) {
    return close_and_fail(server, errno);
  }
  return server;
}

/*
 * Returns the next client; -EAGAIN if there is none, -EPERM if it belonged to another user and is
 * closed.
 */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_accept(JNIEnv *env, jclass type,
                                                                          jint server) {
  (void)env;
  (void)type;
  int client = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client < 0) {
    return -errno;
  }
  return is_of_this_user(client) ? client : close_and_fail(client, EPERM);
}

/*
 * Returns 1 and the client's token; 0 if it has not arrived yet; a negative result if it never
 * will.
 */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_receiveToken(
    JNIEnv *env, jclass type, jint client, jbyteArray token) {
  (void)type;
  Request request;
  ssize_t received = recv(client, &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);
  if (received < 0) {
    return errno == EAGAIN || errno == EINTR ? 0 : -errno;
  }
  if (received != sizeof request || request.magic != MAGIC) {
    return received == 0 ? -EPIPE : -EPROTO;
  }
  (*env)->SetByteArrayRegion(env, token, 0, TOKEN_LENGTH, (const jbyte *)request.token);
  return 1;
}

/* Answers with a status and, unless the status is negative, a descriptor. Never waits. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_answer(JNIEnv *env, jclass type,
                                                                          jint client, jint status,
                                                                          jint descriptor) {
  (void)env;
  (void)type;
  Answer answer = {MAGIC, status};
  struct iovec part = {&answer, sizeof answer};
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr alignment;
  } control;
  struct msghdr message;
  memset(&message, 0, sizeof message);
  memset(&control, 0, sizeof control);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return sendmsg(client, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof answer ? 0
                                                                                          : -errno;
}

/* Waits until one of the first `count` descriptors can be read, and marks those that can. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_awaitReadable(
    JNIEnv *env, jclass type, jintArray descriptors, jbooleanArray readable, jint count,
    jint timeout_millis) {
  (void)type;
  enum { MOST = 256 };
  jint numbers[MOST];
  jboolean marks[MOST];
  struct pollfd polled[MOST];
  if (count > MOST) {
    return -EINVAL;
  }
  (*env)->GetIntArrayRegion(env, descriptors, 0, count, numbers);
  for (jint i = 0; i < count; i++) {
    polled[i].fd = numbers[i];
    polled[i].events = POLLIN;
    polled[i].revents = 0;
  }
  int ready = poll(polled, (nfds_t)count, timeout_millis);
  if (ready < 0) {
    return errno == EINTR ? 0 : -errno;
  }
  for (jint i = 0; i < count; i++) {
    /* A hang-up or an error counts as readable: reading reports it. */
    marks[i] = polled[i].revents != 0 ? JNI_TRUE : JNI_FALSE;
  }
  (*env)->SetBooleanArrayRegion(env, readable, 0, count, marks);
  return ready;
}

/* Creates a descriptor that wakes a poll. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_newEvent(JNIEnv *env,
                                                                            jclass type) {
  (void)env;
  (void)type;
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return event < 0 ? -errno : event;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_signalEvent(JNIEnv *env,
                                                                               jclass type,
                                                                               jint event) {
  (void)env;
  (void)type;
  uint64_t one = 1;
  return write(event, &one, sizeof one) == (ssize_t)sizeof one ? 0 : -errno;
}

JNIEXPORT void JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_close(JNIEnv *env, jclass type,
                                                                         jint descriptor) {
  (void)env;
  (void)type;
  close(descriptor);
}

static int64_t now_millis(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns 0 once there is data to read, or -ETIMEDOUT. */
static int await_readable(int socket, int64_t deadline) {
  for (;;) {
    int64_t left = deadline - now_millis();
    struct pollfd polled = {socket, POLLIN, 0};
    int ready = poll(&polled, 1, left < 0 ? 0 : (int)left);
    if (ready > 0) {
      return 0;
    }
    if (ready < 0 && errno != EINTR) {
      return -errno;
    }
    if (left <= 0) {
      return -ETIMEDOUT;
    }
  }
}

/*
 * If the backlog is full, connect returns EAGAIN at once, and poll does not report when it has
 * room: repeat it until the deadline.
 */
static int connect_until(int client, const struct sockaddr_un *address, socklen_t length,
                         int64_t deadline) {
  while (connect(client, (const struct sockaddr *)address, length) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      return -errno;
    }
    if (now_millis() >= deadline) {
      return -ETIMEDOUT;
    }
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  return 0;
}

static int take_descriptor(struct msghdr *message) {
  for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
      int descriptor;
      memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
      return descriptor;
    }
  }
  return -1;
}

static int receive_answer(int client, int32_t *status) {
  Answer answer = {0, 0};
  struct iovec part = {&answer, sizeof answer};
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr alignment;
  } control;
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t received = recvmsg(client, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0) {
    return -errno;
  }
  if (received == 0) {
    return -ECONNRESET;
  }
  int descriptor = take_descriptor(&message);
  if (received != sizeof answer || answer.magic != MAGIC ||
      (answer.status == 0) != (descriptor >= 0)) {
    return descriptor >= 0 ? close_and_fail(descriptor, EPROTO) : -EPROTO;
  }
  *status = answer.status;
  return descriptor >= 0 ? descriptor : 0;
}

/* Returns a socket that is connected to the server of that name, a process of this user. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_connect(JNIEnv *env,
                                                                           jclass type,
                                                                           jbyteArray name,
                                                                           jint timeout_millis) {
  (void)type;
  char *text = fluxccl_copy_bytes(env, name);
  if (text == NULL) {
    return -ENOMEM;
  }
  struct sockaddr_un address;
  socklen_t length = abstract_address(&address, text);
  free(text);
  int client = new_socket();
  if (client < 0) {
    return -errno;
  }
  int result = connect_until(client, &address, length, now_millis() + timeout_millis);
  if (result != 0) {
    return close_and_fail(client, -result);
  }
  return is_of_this_user(client) ? client : close_and_fail(client, EPERM);
}

/* Sends the request, for which there is always room on a new connection. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_ask(JNIEnv *env, jclass type,
                                                                       jint client,
                                                                       jbyteArray token) {
  (void)type;
  if ((*env)->GetArrayLength(env, token) != TOKEN_LENGTH) {
    return -EINVAL;
  }
  Request request;
  request.magic = MAGIC;
  (*env)->GetByteArrayRegion(env, token, 0, TOKEN_LENGTH, (jbyte *)request.token);
  ssize_t sent = send(client, &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == (ssize_t)sizeof request ? 0 : -errno;
}

/*
 * Returns the descriptor that the server sends. If it refuses, returns 0 and its status in the
 * array.
 */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_DescriptorCalls_receiveDescriptor(
    JNIEnv *env, jclass type, jint client, jint timeout_millis, jintArray status) {
  (void)type;
  int64_t deadline = now_millis() + timeout_millis;
  int32_t refusal = 0;
  int result;
  do {
    result = await_readable(client, deadline);
    if (result == 0) {
      result = receive_answer(client, &refusal);
    }
  } while (result == -EAGAIN || result == -EINTR);
  put_int(env, status, refusal);
  return result;
}
