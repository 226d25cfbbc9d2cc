// SPDX-License-Identifier: Apache-2.0
// A libibverbs without a device's driver: two devices of two ports whose queue pairs write within this process. It checks
// what a driver would: masks and attributes of ibv_modify_qp, states, ports, GIDs, LIDs, packet numbers, keys and ranges.
// It prints each refusal on stderr. FAKE_VERBS_LOG names a file that gets a line for each call of set-up.
#include <infiniband/verbs.h>

// Functions of the library that the macros and inline functions of its header call.
#undef ibv_query_port
#undef ibv_reg_mr

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { DEVICES = 2, PORTS = 2, GIDS = 3, MAX_PAIRS = 256, MAX_REGIONS = 1024, MAX_COMPLETIONS = 1 << 15 };

// Not in the order of their names. The first is RoCE, the second InfiniBand.
static struct ibv_device devices[DEVICES] = {{.name = "fake1"}, {.name = "fake0"}};

struct pair {
  struct ibv_qp qp;
  struct ibv_qp_attr attributes;
  uint32_t inline_limit;
};

struct queue {
  struct ibv_cq cq;
  struct ibv_wc *completions;
  int first, count, size;
};

static struct pair *pairs[MAX_PAIRS];
static struct ibv_mr *regions[MAX_REGIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void record(const char *format, ...) {
  const char *path = getenv("FAKE_VERBS_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fputc('\n', file);
  fclose(file);
}

static int refuse(int error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("fake libibverbs: ", stderr);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  errno = error;
  return error;
}

static int is_ethernet(const struct ibv_context *context) { return context->device == &devices[0]; }

static uint16_t lid_of(int port) { return (uint16_t)(10 + port); }

// fe80::<port>:<index + 1>: of each port another one.
static union ibv_gid gid_of(int port, int index) {
  union ibv_gid gid = {.raw = {0xfe, 0x80}};
  gid.raw[13] = (uint8_t)port;
  gid.raw[15] = (uint8_t)(index + 1);
  return gid;
}

API struct ibv_device **ibv_get_device_list(int *count) {
  struct ibv_device **list = calloc(DEVICES + 1, sizeof *list);
  for (int i = 0; i < DEVICES; i++) list[i] = &devices[i];
  if (count) *count = DEVICES;
  return list;
}

API void ibv_free_device_list(struct ibv_device **list) { free(list); }
API const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

static int post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int poll_cq(struct ibv_cq *, int, struct ibv_wc *);

API struct ibv_context *ibv_open_device(struct ibv_device *device) {
  struct ibv_context *context = calloc(1, sizeof *context);
  context->device = device;
  context->num_comp_vectors = 1;
  context->ops.post_send = post_send;
  context->ops.poll_cq = poll_cq;
  record("open %s", device->name);
  return context;
}

API int ibv_close_device(struct ibv_context *context) {
  record("close %s", context->device->name);
  free(context);
  return 0;
}

API int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *result) {
  if (port < 1 || port > PORTS) return refuse(EINVAL, "ibv_query_port(%d)", port);
  struct ibv_port_attr *attributes = (struct ibv_port_attr *)result;
  attributes->state = IBV_PORT_ACTIVE;
  attributes->active_mtu = port == 1 ? IBV_MTU_4096 : IBV_MTU_1024;
  attributes->gid_tbl_len = GIDS;
  attributes->lid = is_ethernet(context) ? 0 : lid_of(port);
  attributes->link_layer = is_ethernet(context) ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  return 0;
}

API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
  struct ibv_pd *domain = calloc(1, sizeof *domain);
  domain->context = context;
  return domain;
}

API int ibv_dealloc_pd(struct ibv_pd *domain) {
  int used = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_REGIONS; i++) used += regions[i] && regions[i]->pd == domain;
  for (int i = 0; i < MAX_PAIRS; i++) used += pairs[i] && pairs[i]->qp.pd == domain;
  pthread_mutex_unlock(&lock);
  if (used) return refuse(EBUSY, "ibv_dealloc_pd: %d memories and queue pairs are open", used);
  record("dealloc_pd");
  free(domain);
  return 0;
}

static struct ibv_mr *add_region(struct ibv_pd *domain, uint64_t address, size_t length) {
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < MAX_REGIONS && regions[i]) i++;
  struct ibv_mr *region = i == MAX_REGIONS ? NULL : calloc(1, sizeof *region);
  if (region) {
    static uint32_t drawn;
    *region = (struct ibv_mr){.context = domain->context, .pd = domain, .addr = (void *)address, .length = length,
                              .handle = (uint32_t)i, .lkey = (++drawn << 12) | (uint32_t)i};
    region->rkey = region->lkey ^ 0x800;
    regions[i] = region;
  }
  pthread_mutex_unlock(&lock);
  if (!region) refuse(ENOMEM, "more than %d memories", MAX_REGIONS);
  return region;
}

API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *domain, void *address, size_t length, uint64_t iova, unsigned access) {
  if (iova != (uint64_t)address || access != (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) {
    refuse(EINVAL, "ibv_reg_mr(access=%u)", access);
    return NULL;
  }
  record("reg_mr length=%zu access=%u", length, access);
  return add_region(domain, (uint64_t)address, length);
}

API struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *address, size_t length, int access) {
  return ibv_reg_mr_iova2(domain, address, length, (uint64_t)address, (unsigned)access);
}

API struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *domain, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0) {
    errno = EBADF;
    return NULL;
  }
  if (access != (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) || offset + length > (uint64_t)size ||
      (iova - offset) % 4096) {
    refuse(EINVAL, "ibv_reg_dmabuf_mr(offset=%lu length=%zu iova=0x%lx access=%d) of %ld bytes", offset, length, iova,
           access, (long)size);
    return NULL;
  }
  record("reg_dmabuf_mr offset=%lu length=%zu size=%ld access=%d", offset, length, (long)size, access);
  return add_region(domain, iova, length);
}

API int ibv_dereg_mr(struct ibv_mr *region) {
  pthread_mutex_lock(&lock);
  regions[region->handle] = NULL;
  pthread_mutex_unlock(&lock);
  free(region);
  return 0;
}

static int covers(uint32_t key, int remote, uint64_t address, uint32_t length) {
  struct ibv_mr *region = regions[key % MAX_REGIONS];
  uint64_t start = region ? (uint64_t)region->addr : 0;
  return region && (remote ? region->rkey : region->lkey) == key && address >= start &&
         address + length <= start + region->length;
}

API struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
  struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
  channel->context = context;
  channel->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return channel;
}

API int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
  close(channel->fd);
  free(channel);
  return 0;
}

API int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **queue, void **context) { return -1; }
API void ibv_ack_cq_events(struct ibv_cq *queue, unsigned count) {}

API struct ibv_cq *ibv_create_cq(struct ibv_context *context, int size, void *user, struct ibv_comp_channel *channel,
                                 int vector) {
  struct queue *queue = calloc(1, sizeof *queue);
  queue->cq.context = context;
  queue->size = size;
  queue->completions = calloc((size_t)size, sizeof *queue->completions);
  return &queue->cq;
}

API int ibv_destroy_cq(struct ibv_cq *cq) {
  free(((struct queue *)cq)->completions);
  free(cq);
  return 0;
}

API struct ibv_qp *ibv_create_qp(struct ibv_pd *domain, struct ibv_qp_init_attr *init) {
  if (init->qp_type != IBV_QPT_RC || init->cap.max_send_sge != 1 || init->cap.max_inline_data > 1024) {
    refuse(EINVAL, "ibv_create_qp");
    return NULL;
  }
  struct pair *pair = calloc(1, sizeof *pair);
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < MAX_PAIRS && pairs[i]) i++;
  pair->qp = (struct ibv_qp){.context = domain->context, .pd = domain, .send_cq = init->send_cq, .recv_cq = init->recv_cq,
                             .qp_num = 0x100 + (uint32_t)i, .state = IBV_QPS_RESET, .qp_type = IBV_QPT_RC};
  pair->inline_limit = init->cap.max_inline_data;
  pairs[i] = pair;
  pthread_mutex_unlock(&lock);
  record("create_qp send=%u inline=%u", init->cap.max_send_wr, init->cap.max_inline_data);
  return &pair->qp;
}

API int ibv_destroy_qp(struct ibv_qp *qp) {
  pthread_mutex_lock(&lock);
  pairs[qp->qp_num - 0x100] = NULL;
  pthread_mutex_unlock(&lock);
  record("destroy_qp");
  free(qp);
  return 0;
}

static int to_init(struct pair *pair, const struct ibv_qp_attr *a, int mask) {
  const int needed = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (pair->qp.state != IBV_QPS_RESET || mask != needed || a->port_num < 1 || a->port_num > PORTS || a->pkey_index) {
    return refuse(EINVAL, "ibv_modify_qp(INIT): state=%d mask=0x%x port=%d", pair->qp.state, mask, a->port_num);
  }
  record("INIT port=%d access=%u", a->port_num, a->qp_access_flags);
  pair->attributes = *a;
  return 0;
}

static int to_rtr(struct pair *pair, const struct ibv_qp_attr *a, int mask) {
  const int needed = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  const struct ibv_ah_attr *to = &a->ah_attr;
  int ethernet = is_ethernet(pair->qp.context);
  if (pair->qp.state != IBV_QPS_INIT || mask != needed || to->port_num != pair->attributes.port_num ||
      a->path_mtu < IBV_MTU_256 || a->path_mtu > (to->port_num == 1 ? IBV_MTU_4096 : IBV_MTU_1024) || a->rq_psn >> 24) {
    return refuse(EINVAL, "ibv_modify_qp(RTR): state=%d mask=0x%x port=%d mtu=%d", pair->qp.state, mask, to->port_num,
                  a->path_mtu);
  }
  if (ethernet ? !to->is_global || to->grh.sgid_index >= GIDS || !to->grh.hop_limit : !to->is_global && !to->dlid) {
    return refuse(EINVAL, "ibv_modify_qp(RTR): no address: global=%d lid=%d", to->is_global, to->dlid);
  }
  record("RTR port=%d mtu=%d global=%d gid_index=%d dgid=%d:%d lid=%d reads=%d", to->port_num, a->path_mtu, to->is_global,
         to->grh.sgid_index, to->grh.dgid.raw[13], to->grh.dgid.raw[15], to->dlid, a->max_dest_rd_atomic);
  int port = pair->attributes.port_num;
  pair->attributes = *a;
  pair->attributes.port_num = (uint8_t)port;
  return 0;
}

static int to_rts(struct pair *pair, const struct ibv_qp_attr *a, int mask) {
  const int needed = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_MAX_QP_RD_ATOMIC;
  if (pair->qp.state != IBV_QPS_RTR || mask != needed || a->retry_cnt > 7 || a->rnr_retry > 6 || !a->timeout ||
      a->timeout > 31 || a->sq_psn >> 24) {
    return refuse(EINVAL, "ibv_modify_qp(RTS): state=%d mask=0x%x", pair->qp.state, mask);
  }
  record("RTS timeout=%d retries=%d rnr=%d", a->timeout, a->retry_cnt, a->rnr_retry);
  pair->attributes.sq_psn = a->sq_psn;
  return 0;
}

API int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask) {
  struct pair *pair = (struct pair *)qp;
  pthread_mutex_lock(&lock);
  int error = attributes->qp_state == IBV_QPS_INIT  ? to_init(pair, attributes, mask)
              : attributes->qp_state == IBV_QPS_RTR ? to_rtr(pair, attributes, mask)
              : attributes->qp_state == IBV_QPS_RTS ? to_rts(pair, attributes, mask)
                                                    : refuse(EINVAL, "ibv_modify_qp(%d)", attributes->qp_state);
  if (!error) qp->state = attributes->qp_state;
  pthread_mutex_unlock(&lock);
  return error;
}

// Whether packets of the one queue pair come to the other, which expects them.
static int reaches(const struct pair *from, const struct pair *to) {
  const struct ibv_ah_attr *path = &from->attributes.ah_attr;
  union ibv_gid own = gid_of(to->attributes.port_num, to->attributes.ah_attr.grh.sgid_index);
  int addressed = path->is_global ? !memcmp(&own, &path->grh.dgid, sizeof own)
                                  : path->dlid == lid_of(to->attributes.port_num);
  return (to->qp.state == IBV_QPS_RTR || to->qp.state == IBV_QPS_RTS) && addressed &&
         to->qp.context->device == from->qp.context->device && to->attributes.dest_qp_num == from->qp.qp_num &&
         to->attributes.rq_psn == from->attributes.sq_psn;
}

static enum ibv_wc_status execute(struct pair *pair, const struct ibv_send_wr *request) {
  uint32_t index = pair->attributes.dest_qp_num - 0x100;
  struct pair *target = index < MAX_PAIRS ? pairs[index] : NULL;
  const struct ibv_sge *source = request->sg_list;
  int inlined = (request->send_flags & IBV_SEND_INLINE) != 0;
  if (pair->qp.state != IBV_QPS_RTS) return IBV_WC_WR_FLUSH_ERR;
  if (inlined ? source->length > pair->inline_limit : !covers(source->lkey, 0, source->addr, source->length)) {
    return IBV_WC_LOC_PROT_ERR;
  }
  if (!target || !reaches(pair, target)) return IBV_WC_RETRY_EXC_ERR;
  if (!covers(request->wr.rdma.rkey, 1, request->wr.rdma.remote_addr, source->length)) return IBV_WC_REM_ACCESS_ERR;
  memcpy((void *)request->wr.rdma.remote_addr, (void *)source->addr, source->length);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return IBV_WC_SUCCESS;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **bad) {
  struct pair *pair = (struct pair *)qp;
  struct queue *queue = (struct queue *)qp->send_cq;
  if (request->opcode != IBV_WR_RDMA_WRITE || request->num_sge != 1 || request->next) {
    *bad = request;
    return refuse(EINVAL, "ibv_post_send: opcode=%d", request->opcode);
  }
  pthread_mutex_lock(&lock);
  enum ibv_wc_status status = execute(pair, request);
  if (status != IBV_WC_SUCCESS) qp->state = IBV_QPS_ERR;
  if (status != IBV_WC_SUCCESS || request->send_flags & IBV_SEND_SIGNALED) {
    struct ibv_wc *completion = &queue->completions[(queue->first + queue->count++) % queue->size];
    memset(completion, 0, sizeof *completion);
    completion->wr_id = request->wr_id;
    completion->status = status;
    completion->qp_num = qp->qp_num;
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *completions) {
  struct queue *queue = (struct queue *)cq;
  pthread_mutex_lock(&lock);
  int taken = 0;
  for (; taken < most && queue->count; taken++, queue->count--) {
    completions[taken] = queue->completions[queue->first];
    queue->first = (queue->first + 1) % queue->size;
  }
  pthread_mutex_unlock(&lock);
  return taken;
}
