// SPDX-License-Identifier: Apache-2.0
// Plays NCCL: loads a network plugin with dlopen and drives it through one version of the interface.
//
//   host LIBRARY VERSION SCENARIO
//
// Knows the interface by the numbers of its functions and the offsets of its properties, not by the
// plugin's own headers. Ends with 0 and a line "ok ..." when all was as it should be.
#define _GNU_SOURCE
#include "interface.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// ---- connections ----

double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

struct pair connect_pair(void) {
  struct pair pair = {NULL, NULL};
  char handle[HANDLE];
  void *listener = NULL;
  int result = do_listen(0, handle, &listener);
  CHECK(result == 0 && listener, "listen: %d", result);
  for (double end = now() + 60; !pair.send || !pair.receive;) {
    result = pair.send ? 0 : do_connect(0, handle, &pair.send);
    CHECK(result == 0, "connect: %d", result);
    result = pair.receive ? 0 : do_accept(listener, &pair.receive);
    CHECK(result == 0, "accept: %d", result);
    CHECK(now() < end, "no connection in 60 s");
    sched_yield();
  }
  do_close(CLOSE_LISTEN, listener);
  return pair;
}

int await(void *request, double seconds) {
  for (double end = now() + seconds; now() < end; sched_yield()) {
    int done = 0, size = -1;
    int result = test(request, &done, &size);
    if (result) {
      return -result;
    }
    if (done) {
      return size;
    }
  }
  fail("a request was not done in %.0f s", seconds);
  return 0;
}

void fill(unsigned char *data, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    data[i] = (unsigned char)(i * 31 + (i >> 12) + seed);
  }
}

// 32 messages in flight over one connection, of each size; all of them compared.
static void transfer(struct pair pair, const size_t *sizes, int count, unsigned seed) {
  size_t most = 0;
  for (int i = 0; i < count; i++) {
    most = sizes[i] > most ? sizes[i] : most;
  }
  size_t room = most + 64;
  unsigned char *from = malloc(REQUESTS * room), *to = malloc(REQUESTS * room);
  CHECK(from && to, "no memory");
  void *from_memory = reg(pair.send, from, REQUESTS * room);
  void *to_memory = reg(pair.receive, to, REQUESTS * room);
  for (int s = 0; s < count; s++) {
    void *sends[REQUESTS], *receives[REQUESTS];
    memset(to, 0, REQUESTS * room);
    for (int i = 0; i < REQUESTS; i++) {
      fill(from + i * room, sizes[s], seed + s * REQUESTS + i);
      int result = irecv(pair.receive, to + i * room, room, to_memory, &receives[i]);
      CHECK(result == 0 && receives[i] > (void *)1, "irecv: %d", result);
      result = isend(pair.send, from + i * room, sizes[s], from_memory, &sends[i]);
      CHECK(result == 0 && sends[i], "isend: %d", result);
    }
    // The first would otherwise wait for a reader.
    int open = 2 * REQUESTS;
    for (double end = now() + 120; open;) {
      for (int i = 0; i < REQUESTS; i++) {
        int done = 0, size = -1;
        if (sends[i]) {
          CHECK(test(sends[i], &done, &size) == 0, "test of a send");
          CHECK(!done || size == (int)sizes[s], "%d of %zu bytes sent", size, sizes[s]);
          open -= done;
          sends[i] = done ? NULL : sends[i];
        }
        done = 0;
        if (receives[i]) {
          CHECK(test(receives[i], &done, &size) == 0, "test of a receive");
          CHECK(!done || size == (int)sizes[s], "%d of %zu bytes received", size, sizes[s]);
          open -= done;
          if (done) {
            consumed(pair.receive, receives[i]);
            receives[i] = NULL;
          }
        }
      }
      CHECK(now() < end, "%d requests of %zu bytes were not done in 120 s", open, sizes[s]);
      sched_yield();
    }
    for (int i = 0; i < REQUESTS; i++) {
      CHECK(memcmp(from + i * room, to + i * room, sizes[s]) == 0, "message %d of %zu bytes is wrong", i, sizes[s]);
      CHECK(to[i * room + sizes[s]] == 0, "written behind message %d of %zu bytes", i, sizes[s]);
    }
  }
  dereg(pair.send, from_memory);
  dereg(pair.receive, to_memory);
  free(from);
  free(to);
}

void close_pair(struct pair pair) {
  do_close(CLOSE_SEND, pair.send);
  do_close(CLOSE_RECV, pair.receive);
}

// ---- scenarios ----

static void *transfer_thread(void *number) {
  static const size_t sizes[] = {0, 1, 1000, 4096, 65535, 65536, 100003, 524288};
  struct pair pair = connect_pair();
  transfer(pair, sizes, sizeof sizes / sizeof *sizes, (unsigned)(uintptr_t)number * 1000);
  close_pair(pair);
  return NULL;
}

static void scenario_transfer(void) {
  enum { THREADS = 4 };
  check_properties();
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) {
    pthread_create(&threads[i], NULL, transfer_thread, (void *)i);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
}

// Closes ends with requests in flight and frees their memory. Another pair must continue.
static void scenario_close(void) {
  static const size_t sizes[] = {0, 100, 300000};
  enum { SIZE = 1 << 20 };
  struct pair other = connect_pair();
  for (int round = 0; round < 20; round++) {
    struct pair pair = connect_pair();
    char *data = malloc(2 * SIZE);
    void *from = reg(pair.send, data, SIZE), *to = reg(pair.receive, data + SIZE, SIZE);
    void *request;
    for (int i = 0; i < REQUESTS / 2; i++) {
      CHECK(isend(pair.send, data, SIZE, from, &request) == 0, "isend");
      CHECK(round % 3 == 0 || irecv(pair.receive, data + SIZE, SIZE, to, &request) == 0, "irecv");
    }
    dereg(pair.send, from);
    dereg(pair.receive, to);
    if (round % 2) {
      do_close(CLOSE_RECV, pair.receive);
      do_close(CLOSE_SEND, pair.send);
    } else {
      close_pair(pair);
    }
    memset(data, round, 2 * SIZE);
    free(data);
  }
  transfer(other, sizes, 3, 5);
  close_pair(other);
}

static int entries(const char *folder) {
  DIR *directory = opendir(folder);
  int count = 0;
  while (directory && readdir(directory)) {
    count++;
  }
  closedir(directory);
  return count;
}

static void scenario_rounds(void) {
  static const size_t sizes[] = {64};
  int files = 0, threads = 0;
  finalize();
  for (int round = 0; round < 1000; round++) {
    if (round % 100 == 99) {
      dlclose(library);
      load();
    }
    if (round == 200) {
      files = entries("/proc/self/fd");
      threads = entries("/proc/self/task");
    }
    CHECK(init() == 0, "init in round %d", round);
    struct pair pair = connect_pair();
    if (round % 10 == 0) {
      transfer(pair, sizes, 1, round);
    }
    close_pair(pair);
    finalize();
  }
  // The last rounds may still be closing files; a leak in each round stays until the timeout.
  for (double end = now() + 30; entries("/proc/self/fd") > files + 20 || entries("/proc/self/task") > threads + 10;) {
    CHECK(now() < end, "%d files and %d threads, %d and %d after 200 rounds", entries("/proc/self/fd"),
          entries("/proc/self/task"), files, threads);
    usleep(1000);
  }
  CHECK(init() == 0, "the last init");
}

static void scenario_fork(void) {
  pid_t child = fork();
  if (child == 0) {
    char handle[HANDLE];
    void *comm = NULL;
    int count;
    int refused = init() != 0 && devices(&count) != 0 && do_listen(0, handle, &comm) != 0;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "the forked child was not refused: %d", status);
  transfer_thread(NULL);
}

// The other process of scenario_kill: connects to the handle on its input, or listens, and stays.
static void scenario_peer(void) {
  char handle[HANDLE], byte[64] = {0};
  void *comm = NULL, *request = NULL;
  CHECK(fread(handle, 1, 1, stdin) == 1, "no word");
  if (handle[0] == 's') {
    CHECK(fread(handle, 1, HANDLE, stdin) == HANDLE, "no handle");
    while (!comm) {
      CHECK(do_connect(0, handle, &comm) == 0, "connect");
    }
    CHECK(isend(comm, byte, sizeof byte, reg(comm, byte, sizeof byte), &request) == 0, "isend");
    await(request, 60);
  } else {
    void *listener = NULL;
    CHECK(do_listen(0, handle, &listener) == 0, "listen");
    write(STDERR_FILENO, handle, HANDLE);
    while (!comm) {
      CHECK(do_accept(listener, &comm) == 0, "accept");
    }
    CHECK(irecv(comm, byte, sizeof byte, reg(comm, byte, sizeof byte), &request) == 0, "irecv");
    await(request, 60);
  }
  pause();
}

// Starts the other process, with a pipe to its input and one from its standard error.
static pid_t start_peer(int *to, int *from) {
  int in[2], out[2];
  CHECK(pipe(in) == 0 && pipe(out) == 0, "pipe");
  pid_t child = fork();
  if (child == 0) {
    char number[8];
    snprintf(number, sizeof number, "%d", version);
    dup2(in[0], 0);
    dup2(out[1], 2);
    close(in[1]);
    close(out[0]);
    execl("/proc/self/exe", "host", library_path, number, "peer", (char *)NULL);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  *to = in[1];
  *from = out[0];
  return child;
}

static void scenario_kill(void) {
  char handle[HANDLE], data[4096] = {0};
  void *listener = NULL, *comm = NULL, *request = NULL;
  int to, from;
  // The sender dies.
  CHECK(do_listen(0, handle, &listener) == 0, "listen");
  pid_t child = start_peer(&to, &from);
  CHECK(write(to, "s", 1) == 1 && write(to, handle, HANDLE) == HANDLE, "write");
  while (!comm) {
    CHECK(do_accept(listener, &comm) == 0, "accept");
    sched_yield();
  }
  void *memory = reg(comm, data, sizeof data);
  CHECK(irecv(comm, data, sizeof data, memory, &request) == 0, "irecv");
  CHECK(await(request, 60) == 64, "the first message");
  CHECK(irecv(comm, data, sizeof data, memory, &request) == 0, "irecv");
  kill(child, SIGKILL);
  double start = now();
  int result = await(request, 60);
  CHECK(result == -REMOTE_ERROR, "the receive ended with %d, not with ncclRemoteError", -result);
  CHECK(now() - start < 60, "it took %.1f s", now() - start);
  waitpid(child, NULL, 0);
  dereg(comm, memory);
  do_close(CLOSE_RECV, comm);
  do_close(CLOSE_LISTEN, listener);
  // The receiver dies.
  child = start_peer(&to, &from);
  CHECK(write(to, "r", 1) == 1, "write");
  for (int have = 0; have < HANDLE;) {
    int n = (int)read(from, handle + have, HANDLE - have);
    CHECK(n > 0, "no handle came");
    have += n;
  }
  for (comm = NULL; !comm; sched_yield()) {
    CHECK(do_connect(0, handle, &comm) == 0, "connect");
  }
  memory = reg(comm, data, sizeof data);
  CHECK(isend(comm, data, 64, memory, &request) == 0, "isend");
  CHECK(await(request, 60) == 64, "the first message");
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  start = now();
  for (result = 0; result >= 0;) {
    CHECK(now() - start < 60, "sends to a dead process succeed");
    result = -isend(comm, data, sizeof data, memory, &request);
    result = result ? result : await(request, 60);
  }
  CHECK(result == -REMOTE_ERROR, "the send ended with %d, not with ncclRemoteError", -result);
  dereg(comm, memory);
  do_close(CLOSE_SEND, comm);
}

// With FLUXCCL_NET_TIMEOUT set to a second or so.
static void scenario_deadline(void) {
  struct pair pair = connect_pair();
  char data[64];
  void *request;
  CHECK(irecv(pair.receive, data, sizeof data, reg(pair.receive, data, sizeof data), &request) == 0, "irecv");
  double start = now();
  int result = await(request, 60);
  CHECK(result == -REMOTE_ERROR, "it ended with %d, not with ncclRemoteError", -result);
  printf("after %.1f s\n", now() - start);
  close_pair(pair);
}

// Misuse gets a code, and the process lives.
static void scenario_misuse(void) {
  struct pair pair = connect_pair();
  char data[64], big[128];
  void *request, *small, *memory = reg(pair.send, big, sizeof big);
  int done;
  CHECK(irecv(pair.receive, data, sizeof data, reg(pair.receive, data, sizeof data), &small) == 0, "irecv");
  CHECK(isend(pair.receive, data, 1, NULL, &request) == INTERNAL_ERROR && !request, "isend on the receiving end");
  CHECK(isend(pair.send, data, 1, NULL, &request) == INTERNAL_ERROR && !request, "isend without memory");
  CHECK(test((void *)77, &done, NULL) == INTERNAL_ERROR, "test of no request");
  CHECK(isend(pair.send, big, sizeof big, memory, &request) == 0, "isend");
  CHECK(await(small, 60) == -INVALID_USAGE, "more was sent than the receive has");
  // The sender gets the error too.
  int result = await(request, 60);
  for (double end = now() + 60; result >= 0;) {
    CHECK(now() < end, "the sender never heard of it");
    result = -isend(pair.send, big, 1, memory, &request);
    result = result ? result : await(request, 60);
  }
  CHECK(result == -REMOTE_ERROR, "the sender's result is %d", -result);
  close_pair(pair);
  CHECK(isend(pair.send, big, 1, memory, &request) == INTERNAL_ERROR, "isend on a closed end");
}

// Starts a JVM as a program that embeds one does: HOST_JVM is its libjvm.so, HOST_CLASS_PATH its class path.
static void start_jvm(void) {
  // As jni.h has them.
  struct {
    const char *text;
    void *extra;
  } options[] = {{NULL, NULL}, {"--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED", NULL}, {"-Xrs", NULL}};
  struct {
    int version, count;
    void *options;
    unsigned char ignore;
  } given = {0x000a0000, 3, options, 0};
  char class_path[65536];
  snprintf(class_path, sizeof class_path, "-Djava.class.path=%s", getenv("HOST_CLASS_PATH"));
  options[0].text = class_path;
  void *jvm_library = dlopen(getenv("HOST_JVM"), RTLD_NOW | RTLD_LOCAL);
  CHECK(jvm_library, "dlopen: %s", dlerror());
  int (*create)(void **, void **, void *) = (int (*)(void **, void **, void *))dlsym(jvm_library, "JNI_CreateJavaVM");
  void *jvm, *env;
  int result = create(&jvm, &env, &given);
  CHECK(result == 0, "JNI_CreateJavaVM: %d", result);
}

int main(int count, char **arguments) {
  static const struct {
    const char *name;
    void (*run)(void);
  } scenarios[] = {
      {"transfer", scenario_transfer}, {"close", scenario_close},       {"rounds", scenario_rounds}, {"fork", scenario_fork},
      {"peer", scenario_peer},         {"kill", scenario_kill},         {"deadline", scenario_deadline},
      {"misuse", scenario_misuse},     {"groups", scenario_groups},     {"codes", scenario_codes},
      {"senders", scenario_senders},
  };
  // These make the calls of init themselves.
  static const struct {
    const char *name;
    void (*run)(void);
  } guests[] = {{"refused", scenario_refused}, {"finalize", scenario_finalize}, {"signal", scenario_signal}};
  CHECK(count == 4, "usage: host LIBRARY VERSION SCENARIO");
  library_path = arguments[1];
  version = atoi(arguments[2]);
  CHECK(version >= 6 && version <= 12, "version %d", version);
  if (getenv("HOST_JVM")) {
    start_jvm();
  }
  load();
  if (strcmp(arguments[3], "no-java") == 0) {
    CHECK(init() == 2 && init() == 2, "init without Java");
    printf("ok no-java v%d\n", version);
    return 0;
  }
  for (size_t i = 0; i < sizeof guests / sizeof *guests; i++) {
    if (strcmp(arguments[3], guests[i].name) == 0) {
      guests[i].run();
      printf("ok %s v%d\n", arguments[3], version);
      return 0;
    }
  }
  int result = init();
  CHECK(result == 0, "init: %d", result);
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    if (strcmp(arguments[3], scenarios[i].name) == 0) {
      scenarios[i].run();
      finalize();
      dlclose(library);
      printf("ok %s v%d\n", arguments[3], version);
      return 0;
    }
  }
  fail("no scenario %s", arguments[3]);
}
