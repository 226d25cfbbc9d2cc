// SPDX-License-Identifier: Apache-2.0
/*
 * A wire between two network interfaces: forwards each frame from one to the other, or delays, drops or corrupts it.
 * The kernels of some machines lack netem, which could do this.
 *
 *   wire IF IF        then a line of input each: delay MILLISECONDS, drop PERMILLE, swap COUNT
 *
 * "swap" exchanges two words of each of the next COUNT long TCP segments, which their checksum does not detect.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIDES 2
/* With a header of virtio before it, a frame may hold 64 KiB, which the kernel cuts into segments later. */
#define HEADER ((int)sizeof(struct virtio_net_hdr))
#define ROOM (HEADER + 14 + 65536)
#define QUEUE 8192
#define LONG_SEGMENT 8192
#define WORD 8

struct frame {
  int64_t due;
  int to;
  int bytes;
  uint8_t *data;
};

static int sockets[SIDES];
static struct frame queue[QUEUE];
static unsigned head, tail;
static int64_t delay_nanos;
static int drop_permille, swaps;

static void fail(const char *what) {
  fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int open_side(const char *name) {
  int on = 1;
  int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
  struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
  struct packet_mreq all = {.mr_type = PACKET_MR_PROMISC};
  int room = 8 << 20;
  at.sll_ifindex = all.mr_ifindex = if_nametoindex(name);
  if (fd < 0 || at.sll_ifindex == 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0) fail(name);
  if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0) fail("PACKET_VNET_HDR");
  if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0) fail("PACKET_IGNORE_OUTGOING");
  if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) != 0) fail("PACKET_MR_PROMISC");
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0) fail("SO_RCVBUFFORCE");
  return fd;
}

/* Exchanges two words in the middle of a long TCP segment; both lie at even places, so its checksum stays right. */
static void falsify(uint8_t *frame, int bytes) {
  struct iphdr *ip = (struct iphdr *)(frame + ETHER_HDR_LEN);
  struct ether_header *ethernet = (struct ether_header *)frame;
  if (swaps == 0 || bytes < LONG_SEGMENT || ntohs(ethernet->ether_type) != ETHERTYPE_IP) return;
  if (ip->protocol != IPPROTO_TCP) return;
  struct tcphdr *tcp = (struct tcphdr *)((uint8_t *)ip + 4 * ip->ihl);
  uint8_t *payload = (uint8_t *)tcp + 4 * tcp->doff;
  uint8_t *word = payload + ((frame + bytes - payload) / 2 & ~(WORD - 1));
  uint8_t kept[WORD];
  if (memcmp(word, word + WORD, WORD) == 0) return;
  memcpy(kept, word, WORD);
  memcpy(word, word + WORD, WORD);
  memcpy(word + WORD, kept, WORD);
  swaps--;
  puts("swapped");
}

static void take(int from) {
  static uint8_t room[ROOM];
  ssize_t bytes = recv(sockets[from], room, sizeof room, MSG_DONTWAIT);
  if (bytes < 0 && errno != EAGAIN && errno != ENETDOWN) fail("recv");
  if (bytes <= HEADER) return;
  if (rand() % 1000 < drop_permille || head - tail == QUEUE) return;
  falsify(room + HEADER, bytes - HEADER);
  struct frame *frame = &queue[head++ % QUEUE];
  frame->due = now() + delay_nanos;
  frame->to = 1 - from;
  frame->bytes = bytes;
  frame->data = malloc(bytes);
  memcpy(frame->data, room, bytes);
}

static void give(struct frame *frame) {
  /* A frame that finds no room is lost, as on any wire. */
  if (send(sockets[frame->to], frame->data, frame->bytes, MSG_DONTWAIT) < 0 && errno == EINVAL) fail("send");
  free(frame->data);
}

static void obey(void) {
  char line[64];
  int value;
  if (fgets(line, sizeof line, stdin) == NULL) exit(0);
  if (sscanf(line, "delay %d", &value) == 1) delay_nanos = value * 1000000LL;
  if (sscanf(line, "drop %d", &value) == 1) drop_permille = value;
  if (sscanf(line, "swap %d", &value) == 1) swaps = value;
  puts("obeyed");
}

int main(int count, char **names) {
  if (count != 1 + SIDES) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  setvbuf(stdin, NULL, _IONBF, 0);
  for (int side = 0; side < SIDES; side++) sockets[side] = open_side(names[1 + side]);
  puts("ready");
  while (1) {
    struct pollfd fds[] = {{sockets[0], POLLIN, 0}, {sockets[1], POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    int64_t wait = head == tail ? 1000000000 : queue[tail % QUEUE].due - now();
    struct timespec limit = {.tv_sec = 0, .tv_nsec = wait < 0 ? 0 : wait > 999999999 ? 999999999 : wait};
    if (ppoll(fds, 3, &limit, NULL) < 0 && errno != EINTR) fail("poll");
    for (int side = 0; side < SIDES; side++) {
      if (fds[side].revents != 0) take(side);
    }
    if (fds[2].revents != 0) obey();
    while (head != tail && queue[tail % QUEUE].due <= now()) give(&queue[tail++ % QUEUE]);
  }
}
