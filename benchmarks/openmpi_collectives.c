// SPDX-License-Identifier: Apache-2.0
/* The collectives of MPI, measured as HostCollectives.java measures ours: batches of consecutive calls, each batch
 * after a barrier. The time of a batch is that of the slowest rank. The best batch counts, because other processes of
 * the machine can only add time. Floats; out of place, or in place where asked and possible. One line a size: bytes of
 * the larger of input and output, microseconds a call.
 *
 *   openmpi_collectives COLLECTIVE MINBYTES MAXBYTES FACTOR MILLISECONDS [in] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BATCHES = 2000 };
static const double BATCH_SECONDS = 0.0005;

static const char *const NAMES[] = {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "all-to-all",
                                    "gather",     "scatter",    "send-receive",   "barrier"};
enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, GATHER, SCATTER, SEND_RECEIVE, BARRIER };

static int rank, ranks;

/* Once; part is the elements of one rank's part where there are parts. */
static void collect(int what, float *in, float *out, int count, int part, int in_place) {
  MPI_Comm world = MPI_COMM_WORLD;
  int is_root = rank == 0;
  switch (what) {
    case ALL_REDUCE:
      MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, count, MPI_FLOAT, MPI_SUM, world);
      break;
    case ALL_GATHER:
      MPI_Allgather(in_place ? MPI_IN_PLACE : in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
      break;
    case REDUCE_SCATTER:
      MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, in_place ? in : out, part, MPI_FLOAT, MPI_SUM, world);
      break;
    case BROADCAST: MPI_Bcast(in, count, MPI_FLOAT, 0, world); break;
    case REDUCE:
      MPI_Reduce(in_place && is_root ? MPI_IN_PLACE : in, out, count, MPI_FLOAT, MPI_SUM, 0, world);
      break;
    case ALL_TO_ALL:
      MPI_Alltoall(in_place ? MPI_IN_PLACE : in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
      break;
    case GATHER:
      MPI_Gather(in_place && is_root ? MPI_IN_PLACE : in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, world);
      break;
    case SCATTER:
      MPI_Scatter(in, part, MPI_FLOAT, in_place && is_root ? MPI_IN_PLACE : out, part, MPI_FLOAT, 0, world);
      break;
    case SEND_RECEIVE:
      MPI_Sendrecv(in, count, MPI_FLOAT, (rank + 1) % ranks, 0, out, count, MPI_FLOAT, (rank + ranks - 1) % ranks, 0,
                   world, MPI_STATUS_IGNORE);
      break;
    default: MPI_Barrier(world);
  }
}

static double times[MAX_BATCHES], slowest[MAX_BATCHES];

/* Microseconds a call. */
static double measure(int what, float *in, float *out, int count, int in_place, int batches, int calls) {
  for (int batch = 0; batch < batches; batch++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++) {
      collect(what, in, out, count, count / ranks, in_place);
    }
    times[batch] = MPI_Wtime() - start;
  }
  MPI_Allreduce(times, slowest, batches, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  double best = slowest[0];
  for (int batch = 1; batch < batches; batch++) {
    if (slowest[batch] < best) best = slowest[batch];
  }
  return best / calls * 1e6;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int what = 0;
  while (argc > 1 && what <= BARRIER && strcmp(argv[1], NAMES[what]) != 0) what++;
  if (argc < 6 || what > BARRIER) {
    if (rank == 0) fprintf(stderr, "usage: openmpi_collectives COLLECTIVE MINBYTES MAXBYTES FACTOR MILLISECONDS [in]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  long min = atol(argv[2]), max = atol(argv[3]), factor = atol(argv[4]);
  double seconds = atol(argv[5]) / 1000.0;
  int in_place = argc > 6;
  float *in = malloc(max), *out = malloc(max);
  for (long bytes = min; bytes <= max; bytes *= factor) {
    int count = (int)(bytes / sizeof(float));
    for (int i = 0; i < count; i++) in[i] = out[i] = 0; /* sums stay 0 in place: no slow denormals */
    double once = measure(what, in, out, count, in_place, 5, 2) / 1e6;
    MPI_Bcast(&once, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int calls = once < BATCH_SECONDS / 2 ? (int)(BATCH_SECONDS / once) : 2;
    double batches = seconds / (calls * once);
    double best = measure(what, in, out, count, in_place,
                          batches > MAX_BATCHES ? MAX_BATCHES : batches < 10 ? 10 : (int)batches, calls);
    if (rank == 0) printf("%ld %.3f\n", bytes, best);
  }
  free(in);
  free(out);
  MPI_Finalize();
  return 0;
}
