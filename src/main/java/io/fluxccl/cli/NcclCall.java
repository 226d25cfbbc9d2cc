package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CollectiveCall;

/** One of NCCL's calls with its arguments, ready to be enqueued on any stream. */
interface NcclCall {
  /**
   * Enqueues it.
   *
   * @param library that {@link NcclCalls} opened
   * @param communicator of it
   * @param stream the driver's handle
   * @return an ncclResult_t
   */
  int enqueue(long library, long communicator, long stream);

  /**
   * What NCCL offers for a collective.
   *
   * @param call this rank's
   * @param rank this rank
   * @param nRanks how many ranks
   * @param scratch address of one byte of the GPU's memory, for a barrier
   */
  static NcclCall of(CollectiveCall call, int rank, int nRanks, long scratch) {
    long in = call.input() == null ? 0 : call.input().address();
    long out = call.output() == null ? 0 : call.output().address();
    long count = call.count();
    int type = typeOf(call.type());
    return switch (call.collective()) {
      case ALL_REDUCE -> {
        int op = opOf(call.op());
        yield (lib, comm, stream) ->
            NcclCalls.allReduce(lib, in, out, count, type, op, comm, stream);
      }
      case ALL_GATHER ->
          (lib, comm, stream) -> NcclCalls.allGather(lib, in, out, count, type, comm, stream);
      case REDUCE_SCATTER -> {
        int op = opOf(call.op());
        yield (lib, comm, stream) ->
            NcclCalls.reduceScatter(lib, in, out, count, type, op, comm, stream);
      }
      case BROADCAST -> {
        int root = call.root();
        yield (lib, comm, stream) ->
            NcclCalls.broadcast(lib, in, out, count, type, root, comm, stream);
      }
      case REDUCE -> {
        int op = opOf(call.op());
        int root = call.root();
        yield (lib, comm, stream) ->
            NcclCalls.reduce(lib, in, out, count, type, op, root, comm, stream);
      }
      case BARRIER ->
          (lib, comm, stream) ->
              NcclCalls.allReduce(
                  lib,
                  scratch,
                  scratch,
                  1,
                  typeOf(DataType.UINT8),
                  opOf(ReduceOp.SUM),
                  comm,
                  stream);
      case ALL_TO_ALL, ALL_TO_ALL_V, GATHER, SCATTER, SEND_RECEIVE -> {
        long[] parts = parts(call, rank, nRanks);
        yield (lib, comm, stream) -> NcclCalls.exchange(lib, in, out, parts, type, comm, stream);
      }
    };
  }

  private static long[] parts(CollectiveCall call, int rank, int nRanks) {
    long[] parts = new long[4 * nRanks];
    int size = call.type().size();
    for (int peer = 0; peer < nRanks; peer++) {
      parts[4 * peer] = call.sendOffset(peer);
      parts[4 * peer + 1] = call.sendBytes(rank, peer) / size;
      parts[4 * peer + 2] = call.receiveOffset(peer);
      parts[4 * peer + 3] = call.receiveBytes(rank, peer) / size;
    }
    return parts;
  }

  /** NCCL's number of a type, its ncclDataType_t. */
  static int typeOf(DataType type) {
    return switch (type) {
      case INT8 -> 0;
      case UINT8 -> 1;
      case INT32 -> 2;
      case UINT32 -> 3;
      case INT64 -> 4;
      case UINT64 -> 5;
      case FLOAT16 -> 6;
      case FLOAT32 -> 7;
      case FLOAT64 -> 8;
      case BFLOAT16 -> 9;
      case FLOAT8_E4M3 -> 10;
      case FLOAT8_E5M2 -> 11;
    };
  }

  /** NCCL's number of an operation, its ncclRedOp_t. */
  static int opOf(ReduceOp op) {
    return switch (op) {
      case SUM -> 0;
      case PROD -> 1;
      case MAX -> 2;
      case MIN -> 3;
      case AVG -> 4;
    };
  }
}
