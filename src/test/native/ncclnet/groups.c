// SPDX-License-Identifier: Apache-2.0
// Groups of receives, the codes of misuse, and several senders at one listener.
#define _GNU_SOURCE
#include "interface.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- grouped receives ----

// Each tag is a stream of messages of its own, as each peer is for NCCL. The receiver posts them in groups and has
// few groups in flight, as NCCL. The sender sends them in a shuffled order, and a tag far ahead of the others as
// long as it can.
enum { ROUNDS = 200, DEPTH = 3, AHEAD = 40, SENDS = 300, MOST = 200000, ROOM = MOST + 64 };

static const size_t SIZES[] = {0, 1, 700, 4096, 65535, 65536, 70001, MOST};

static int tag_of(int stream) {
  return 1000 - 31 * stream;
}

static size_t size_of(int stream, int round) {
  return SIZES[(stream * 5 + round * 3 + stream * round) % (sizeof SIZES / sizeof *SIZES)];
}

static unsigned seed_of(int stream, int round) {
  return (unsigned)(stream * 97 + round * 13);
}

struct group {
  void *request;
  int round, n, streams[GROUP];
  unsigned char *room;
};

struct sending {
  void *request;
  int size;
  unsigned char *bytes;
};

static struct pair pair;
static struct group groups[DEPTH];
static struct sending sends[SENDS];
static void *receive_memory, *send_memory;
static int sent[GROUP], next_round, first_part, done_messages;
static unsigned random_state = 7;

static int random_below(int n) {
  random_state = random_state * 1664525 + 1013904223;
  return (int)(random_state >> 8) % n;
}

// Most rounds are one group of all streams; some are two, so that the order in which they are posted and sent differs.
static void post(struct group *group) {
  void *data[GROUP], *memories[GROUP];
  size_t sizes[GROUP];
  int tags[GROUP], split = next_round % 5 == 3 ? 3 : 0;
  int from = first_part ? split : 0, to = split && !first_part ? split : GROUP;
  group->n = 0;
  for (int stream = from; stream < to; stream++) {
    // The order within a group is another each time.
    int at = from + (stream - from + next_round) % (to - from), i = group->n++;
    group->streams[i] = at;
    data[i] = group->room + i * ROOM;
    sizes[i] = size_of(at, next_round) + random_below(64);
    tags[i] = tag_of(at);
    memories[i] = receive_memory;
    memset(data[i], 0, ROOM);
  }
  group->round = next_round;
  int result = irecv_group(pair.receive, group->n, data, sizes, tags, memories, &group->request);
  CHECK(result == 0 && group->request > (void *)1, "irecv of %d: %d", group->n, result);
  first_part = split && !first_part;
  next_round += !first_part;
}

static void check_group(struct group *group) {
  int done = 0, sizes[GROUP + 1];
  memset(sizes, 0x5a, sizeof sizes);
  int result = test(group->request, &done, sizes);
  CHECK(result == 0, "test of a group: %d", result);
  if (!done) {
    return;
  }
  unsigned char *expected = malloc(ROOM);
  for (int i = 0; i < group->n; i++) {
    size_t size = size_of(group->streams[i], group->round);
    CHECK(sizes[i] == (int)size, "message %d of round %d has %d bytes, not %zu", i, group->round, sizes[i], size);
    fill(expected, size, seed_of(group->streams[i], group->round));
    CHECK(memcmp(expected, group->room + i * ROOM, size) == 0, "message %d of round %d is wrong", i, group->round);
    CHECK(group->room[i * ROOM + size] == 0, "written behind message %d of round %d", i, group->round);
  }
  CHECK(sizes[group->n] == 0x5a5a5a5a, "more sizes than the group has");
  free(expected);
  done_messages += group->n;
  group->request = NULL;
}

// Returns whether a message was sent.
static int try_send(int stream) {
  static int free_send;
  if (sent[stream] == ROUNDS) {
    return 0;
  }
  struct sending *sending = NULL;
  for (int i = 0; i < SENDS && !sending; i++) {
    struct sending *each = &sends[(free_send + i) % SENDS];
    sending = each->request ? NULL : each;
  }
  int in_flight = 0;
  for (int i = 0; i < SENDS; i++) {
    in_flight += sends[i].request != NULL;
  }
  if (!sending || in_flight == REQUESTS * GROUP) {
    return 0;
  }
  free_send++;
  size_t size = size_of(stream, sent[stream]);
  fill(sending->bytes, size, seed_of(stream, sent[stream]));
  int result = isend_tagged(pair.send, sending->bytes, size, tag_of(stream), send_memory, &sending->request);
  CHECK(result == 0, "isend with tag %d: %d", tag_of(stream), result);
  sending->size = (int)size;
  sent[stream] += sending->request != NULL;
  return sending->request != NULL;
}

static void check_sends(void) {
  for (int i = 0; i < SENDS; i++) {
    if (sends[i].request) {
      int done = 0, size = -1;
      int result = test(sends[i].request, &done, &size);
      CHECK(result == 0, "test of a send: %d", result);
      CHECK(!done || size == sends[i].size, "%d of %d bytes sent", size, sends[i].size);
      sends[i].request = done ? NULL : sends[i].request;
    }
  }
}

void scenario_groups(void) {
  check_properties();
  pair = connect_pair();
  unsigned char *to = malloc((size_t)DEPTH * GROUP * ROOM), *from = malloc((size_t)SENDS * ROOM);
  CHECK(to && from, "no memory");
  receive_memory = reg(pair.receive, to, (size_t)DEPTH * GROUP * ROOM);
  send_memory = reg(pair.send, from, (size_t)SENDS * ROOM);
  for (int i = 0; i < DEPTH; i++) {
    groups[i].room = to + (size_t)i * GROUP * ROOM;
  }
  for (int i = 0; i < SENDS; i++) {
    sends[i].bytes = from + (size_t)i * ROOM;
  }
  // Nothing is read before the first test, so all of these are sent.
  for (int i = 0; i < AHEAD; i++) {
    CHECK(try_send(1), "send %d of a stream that is ahead", i);
  }
  int declined = 0;
  for (double end = now() + 150; done_messages < ROUNDS * GROUP;) {
    for (int i = 0; i < DEPTH; i++) {
      if (!groups[i].request && next_round < ROUNDS) {
        post(&groups[i]);
      }
    }
    // Stream 0 sends only if no other can.
    int any = 0;
    for (int i = 0; i < GROUP; i++) {
      any |= try_send(1 + random_below(GROUP - 1));
    }
    if (!any && ++declined % 20 == 0) {
      try_send(0);
    }
    check_sends();
    for (int i = 0; i < DEPTH; i++) {
      if (groups[i].request) {
        check_group(&groups[i]);
      }
    }
    CHECK(now() < end, "%d of %d messages after 150 s; sent of the first stream %d, of the others %d", done_messages,
          ROUNDS * GROUP, sent[0], sent[1]);
    sched_yield();
  }
  CHECK(declined > 0, "no send was declined");
  for (double end = now() + 60; now() < end;) {
    int open = 0;
    check_sends();
    for (int i = 0; i < SENDS; i++) {
      open += sends[i].request != NULL;
    }
    if (!open) {
      break;
    }
  }
  dereg(pair.receive, receive_memory);
  dereg(pair.send, send_memory);
  close_pair(pair);
}

// ---- the codes of misuse ----

void scenario_codes(void) {
  enum { MESSAGES = REQUESTS * GROUP };
  struct pair ends = connect_pair();
  char *data = calloc(1, 4096), handle[HANDLE];
  void *from = reg(ends.send, data, 4096), *to = reg(ends.receive, data, 4096);
  void *requests[MESSAGES + 1], *request, *listener = NULL;
  int done;
  // More requests than there may be: REQUESTS receives, and as many sends as their groups could have.
  for (int i = 0; i < REQUESTS; i++) {
    CHECK(irecv(ends.receive, data, 8, to, &requests[i]) == 0, "irecv %d", i);
  }
  CHECK(irecv(ends.receive, data, 8, to, &request) == INTERNAL_ERROR, "one receive too many");
  for (int i = 0; i < REQUESTS; i++) {
    CHECK(isend(ends.send, data, 1, from, &request) == 0 && request, "isend %d", i);
    CHECK(await(request, 60) == 1 && await(requests[i], 60) == 1, "message %d", i);
  }
  // A completed request stays completed, even if another request reuses its slot.
  CHECK(test(requests[0], &done, NULL) == INTERNAL_ERROR, "test of a request that is over");
  CHECK(irecv(ends.receive, data, 8, to, &request) == 0, "irecv");
  for (int i = 0; i < REQUESTS; i++) {
    CHECK(test(requests[i], &done, NULL) == INTERNAL_ERROR, "test of request %d, which is over", i);
  }
  CHECK(isend(ends.send, data, 1, from, &requests[0]) == 0 && await(requests[0], 60) == 1 && await(request, 60) == 1,
        "the message after");
  int sends = 0;
  for (int result = 0; sends < MESSAGES && !result; sends++) {
    result = isend(ends.send, data, 1, from, &requests[sends]);
    CHECK(result == 0 && requests[sends], "isend %d of %d: %d", sends, MESSAGES, result);
  }
  CHECK(isend(ends.send, data, 1, from, &request) == INTERNAL_ERROR && !request, "one send too many");
  // Arguments.
  size_t sizes[GROUP + 1] = {0};
  int tags[GROUP + 1] = {0};
  void *addresses[GROUP + 1] = {data}, *memories[GROUP + 1] = {to};
  CHECK(irecv_group(ends.receive, GROUP + 1, addresses, sizes, tags, memories, &request) == INTERNAL_ERROR, "a group of 9");
  CHECK(irecv_group(ends.receive, 0, addresses, sizes, tags, memories, &request) == INTERNAL_ERROR, "a group of 0");
  CHECK(do_listen(99, handle, &listener) == INTERNAL_ERROR, "listen on device 99");
  memset(handle, 9, sizeof handle);
  CHECK(do_connect(0, handle, &listener) == INTERNAL_ERROR, "connect to no handle");
  CHECK(do_accept(ends.send, &listener) == INTERNAL_ERROR, "accept on a connection");
  close_pair(ends);
}

// ---- several senders ----

void scenario_senders(void) {
  enum { SENDERS = 5 };
  char handle[HANDLE], handles[SENDERS][HANDLE];
  void *listener = NULL, *senders[SENDERS] = {NULL}, *receivers[SENDERS] = {NULL}, *request;
  CHECK(do_listen(0, handle, &listener) == 0 && listener, "listen");
  for (int i = 0; i < SENDERS; i++) {
    memcpy(handles[i], handle, HANDLE);
  }
  // All have connected before the first is accepted.
  for (double end = now() + 1; now() < end;) {
    for (int i = 0; i < SENDERS; i++) {
      CHECK(do_connect(0, handles[i], &senders[i]) == 0 && !senders[i], "connect %d", i);
    }
    sched_yield();
  }
  int accepted = 0, connected = 0;
  for (double end = now() + 60; accepted < SENDERS || connected < SENDERS;) {
    CHECK(now() < end, "%d accepted, %d connected of %d", accepted, connected, SENDERS);
    if (accepted < SENDERS) {
      CHECK(do_accept(listener, &receivers[accepted]) == 0, "accept");
      accepted += receivers[accepted] != NULL;
    }
    for (int i = 0; i < SENDERS; i++) {
      if (!senders[i]) {
        CHECK(do_connect(0, handles[i], &senders[i]) == 0, "connect %d", i);
        connected += senders[i] != NULL;
      }
    }
  }
  int met[SENDERS] = {0};
  for (int i = 0; i < SENDERS; i++) {
    char number = (char)i;
    void *memory = reg(senders[i], &number, 1);
    CHECK(isend(senders[i], &number, 1, memory, &request) == 0 && await(request, 60) == 1, "send %d", i);
  }
  for (int i = 0; i < SENDERS; i++) {
    char number = -1;
    void *memory = reg(receivers[i], &number, 1);
    CHECK(irecv(receivers[i], &number, 1, memory, &request) == 0 && await(request, 60) == 1, "receive %d", i);
    CHECK(number >= 0 && number < SENDERS && !met[(int)number]++, "connection %d is with sender %d", i, number);
  }
  for (int i = 0; i < SENDERS; i++) {
    do_close(CLOSE_SEND, senders[i]);
    do_close(CLOSE_RECV, receivers[i]);
  }
  do_close(CLOSE_LISTEN, listener);
}
