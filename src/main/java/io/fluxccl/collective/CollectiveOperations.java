package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;

/**
 * The operations that {@link Collectives} and {@link Pipeline} both offer, one method each. Shapes,
 * and which buffers may overlap, are in {@link CollectiveCall}.
 *
 * @param <R> what an operation gives: a cold {@code Mono<Void>} that enqueues it on subscription,
 *     or a pipeline with one more step
 */
public interface CollectiveOperations<R> {
  /**
   * Returns any operation.
   *
   * @param call the operation; its buffers are checked when it is enqueued
   * @return as the class says
   */
  R enqueue(CollectiveCall call);

  /**
   * Replaces a buffer by the combination of all ranks' buffers.
   *
   * @param buffer all of it; of the same size on every rank
   * @param type of the elements
   * @param op how to combine values
   * @return as the class says
   */
  default R allReduce(DeviceBuffer buffer, DataType type, ReduceOp op) {
    return allReduce(buffer, buffer, buffer.size() / type.size(), type, op);
  }

  /** Combines all ranks' inputs; {@link CollectiveCall#allReduce}. */
  default R allReduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op) {
    return enqueue(CollectiveCall.allReduce(input, output, count, type, op));
  }

  /** Gathers all ranks' inputs, one behind the other; {@link CollectiveCall#allGather}. */
  default R allGather(DeviceBuffer input, DeviceBuffer output, long count, DataType type) {
    return enqueue(CollectiveCall.allGather(input, output, count, type));
  }

  /** Gives this rank its share of the combination; {@link CollectiveCall#reduceScatter}. */
  default R reduceScatter(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op) {
    return enqueue(CollectiveCall.reduceScatter(input, output, count, type, op));
  }

  /**
   * Replaces a buffer by the root's.
   *
   * @param buffer {@code count} elements from its start
   * @param count elements
   * @param type of the elements
   * @param root the rank whose buffer all get
   * @return as the class says
   */
  default R broadcast(DeviceBuffer buffer, long count, DataType type, int root) {
    return broadcast(buffer, buffer, count, type, root);
  }

  /** Copies the root's input to every rank's output; {@link CollectiveCall#broadcast}. */
  default R broadcast(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return enqueue(CollectiveCall.broadcast(input, output, count, type, root));
  }

  /** Combines all ranks' inputs on the root; {@link CollectiveCall#reduce}. */
  default R reduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op, int root) {
    return enqueue(CollectiveCall.reduce(input, output, count, type, op, root));
  }

  /**
   * Makes share j of rank i's input share i of rank j's output; {@link CollectiveCall#allToAll}.
   */
  default R allToAll(DeviceBuffer input, DeviceBuffer output, long count, DataType type) {
    return enqueue(CollectiveCall.allToAll(input, output, count, type));
  }

  /** Does an all-to-all with shares of any sizes; {@link CollectiveCall#allToAllv}. */
  default R allToAllv(
      DeviceBuffer input,
      long[] sendCounts,
      DeviceBuffer output,
      long[] receiveCounts,
      DataType type) {
    return enqueue(CollectiveCall.allToAllv(input, sendCounts, output, receiveCounts, type));
  }

  /** Gathers all ranks' inputs on the root; {@link CollectiveCall#gather}. */
  default R gather(DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return enqueue(CollectiveCall.gather(input, output, count, type, root));
  }

  /** Gives this rank its share of the root's input; {@link CollectiveCall#scatter}. */
  default R scatter(DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return enqueue(CollectiveCall.scatter(input, output, count, type, root));
  }

  /**
   * Sends to one rank, which receives as many elements. A large send completes only after the
   * receiver has begun to receive. So ranks that send to each other, or in a ring, use {@link
   * #sendReceive}.
   *
   * @param input from its start
   * @param count elements
   * @param type of the elements
   * @param destination the rank that receives
   * @return as the class says; complete when the input may be overwritten
   */
  default R send(DeviceBuffer input, long count, DataType type, int destination) {
    return sendReceive(input, count, destination, null, 0, CollectiveCall.NO_PEER, type);
  }

  /**
   * Receives the elements that one rank sends.
   *
   * @param output from its start
   * @param count elements
   * @param type of the elements
   * @param source the rank that sends
   * @return as the class says; complete when the elements are in the output
   */
  default R recv(DeviceBuffer output, long count, DataType type, int source) {
    return sendReceive(null, 0, CollectiveCall.NO_PEER, output, count, source, type);
  }

  /** Sends to one rank and receives from another at once; {@link CollectiveCall#sendReceive}. */
  default R sendReceive(
      DeviceBuffer input,
      long sendCount,
      int destination,
      DeviceBuffer output,
      long receiveCount,
      int source,
      DataType type) {
    return enqueue(
        CollectiveCall.sendReceive(
            input, sendCount, destination, output, receiveCount, source, type));
  }

  /** Completes when every rank has enqueued it and all that it enqueued before is done. */
  default R barrier() {
    return enqueue(CollectiveCall.barrier());
  }
}
