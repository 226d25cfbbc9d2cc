// SPDX-License-Identifier: Apache-2.0
// NCCL's interface for network plugins, as the host uses it: in every version the same.
#ifndef FLUXCCL_TEST_NCCL_INTERFACE_H
#define FLUXCCL_TEST_NCCL_INTERFACE_H

#include <stddef.h>

// Indices of the functions in the tables of all versions.
enum {
  NAME, INIT, DEVICES, PROPERTIES, LISTEN, CONNECT, ACCEPT, REG_MR, REG_MR_DMABUF, DEREG_MR, ISEND, IRECV, IFLUSH, TEST,
  CLOSE_SEND, CLOSE_RECV, CLOSE_LISTEN, GET_DEVICE_MR, IRECV_CONSUMED, MAKE_VDEVICE, FINALIZE, SET_NET_ATTR
};
enum { HANDLE = 128, REQUESTS = 32, GROUP = 8, PTR_HOST = 1 };
enum { SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_USAGE = 5, REMOTE_ERROR = 6 };

// 6 to 12; set before load.
extern int version;
extern const char *library_path;
extern void *library;

#define CHECK(condition, ...)                                                                                          \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fail(__VA_ARGS__);                                                                                               \
    }                                                                                                                  \
  } while (0)

// Prints why, and ends the process with 1.
void fail(const char *format, ...);
// dlopen, and the table of the version.
void load(void);
// Each gives the plugin's result.
int init(void);
void finalize(void);
// As finalize, with any context; gives the plugin's result.
int try_finalize(void *given);
int devices(int *count);
int do_listen(int device, void *handle, void **comm);
int do_connect(int device, void *handle, void **comm);
int do_accept(void *listener, void **comm);
// End the process unless the result is success.
void *reg(void *comm, void *data, size_t size);
void dereg(void *comm, void *memory);
int isend(void *comm, void *data, size_t size, void *memory, void **request);
int irecv(void *comm, void *data, size_t size, void *memory, void **request);
int isend_tagged(void *comm, void *data, size_t size, int tag, void *memory, void **request);
int irecv_group(void *comm, int n, void **data, size_t *sizes, int *tags, void **memories, void **request);
// Writes a size for each message of the request.
int test(void *request, int *done, int *sizes);
// A receive that is done; ends the process unless the plugin takes it well.
void consumed(void *comm, void *request);
// The function is CLOSE_SEND, CLOSE_RECV or CLOSE_LISTEN.
void do_close(int function, void *comm);
// host.c: both ends of a connection.
struct pair {
  void *send, *receive;
};
struct pair connect_pair(void);
void close_pair(struct pair pair);
double now(void);
void fill(unsigned char *data, size_t size, unsigned seed);
// Waits for a request; gives its size, or minus the result.
int await(void *request, double seconds);

// groups.c
void scenario_groups(void);
void scenario_codes(void);
void scenario_senders(void);
// guest.c: each ends the process, or returns with the library initialized.
void scenario_refused(void);
void scenario_finalize(void);
void scenario_signal(void);

// Checks the properties of device 0, and that nothing after the struct is written.
void check_properties(void);

#endif
