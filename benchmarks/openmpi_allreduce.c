/* MPI_Allreduce, in place, float sum, measured the way "fluxccl perf all-reduce" does it: a barrier,
 * then iterations one after the other, their wall time averaged over the ranks. At least 20
 * iterations and at least 20 ms. One line a size: bytes, microseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEAST_ITERATIONS = 20, MOST_ITERATIONS = 20000, WARM_UP_ITERATIONS = 5 };
static const double LEAST_SECONDS = 0.02;

static double measure(float *data, int count, int iterations, int ranks) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < iterations; i++) {
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  double seconds = MPI_Wtime() - start;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return seconds / ranks;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4) {
    if (rank == 0) fprintf(stderr, "usage: openmpi_allreduce MINBYTES MAXBYTES FACTOR\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  long min = atol(argv[1]), max = atol(argv[2]), factor = atol(argv[3]);
  float *data = malloc(max);
  for (long bytes = min; bytes <= max; bytes *= factor) {
    int count = (int)(bytes / sizeof(float));
    for (int i = 0; i < count; i++) data[i] = (float)(rank + i % 7);
    measure(data, count, WARM_UP_ITERATIONS, ranks);
    int iterations = LEAST_ITERATIONS;
    double seconds = measure(data, count, iterations, ranks);
    /* All ranks computed the same mean, so all go on alike. */
    while (seconds < LEAST_SECONDS && iterations < MOST_ITERATIONS) {
      double missing = 1.2 * LEAST_SECONDS / (seconds > 1e-9 ? seconds : 1e-9);
      double more = iterations * (missing > 2 ? missing : 2);
      iterations = more > MOST_ITERATIONS ? MOST_ITERATIONS : (int)more;
      seconds = measure(data, count, iterations, ranks);
    }
    for (int i = 0; i < count; i++) data[i] = (float)(rank + i % 7);
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
      if (data[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % 7))) {
        fprintf(stderr, "wrong element %d of %d\n", i, count);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
    if (rank == 0) printf("%ld %.3f\n", bytes, seconds / iterations * 1e6);
  }
  free(data);
  MPI_Finalize();
  return 0;
}
