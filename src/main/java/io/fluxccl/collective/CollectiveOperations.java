// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceView;

/**
 * The operations that {@link Collectives} and {@link Pipeline} both offer. Each takes buffers with
 * a count and a type, or {@linkplain DeviceView views}, which define the type and the count.
 * Shapes, and which buffers may overlap, are in {@link CollectiveCall}.
 *
 * <pre>{@code
 * collectives.allReduce(buffer, buffer, 1024, DataType.FLOAT32, ReduceOp.SUM);
 * collectives.allReduce(FloatView.of(buffer).slice(0, 1024), ReduceOp.SUM); // the same
 * }</pre>
 *
 * <p>A null buffer or view that this rank needs, a null type or operation, and views that do not
 * fit each other are refused at once, with {@link InvalidUsage}.
 *
 * @param <R> the result of an operation: a cold {@code Mono<Void>} that enqueues it on
 *     subscription, or a pipeline with one more step
 */
public interface CollectiveOperations<R> {
  /** Returns which ranks share a host, and what is common to all devices. */
  RankTopology topology();

  /**
   * Returns any operation.
   *
   * @param call the operation; its buffers are checked when it is enqueued
   * @return as the class says
   * @throws InvalidUsage if a buffer that this rank needs is null
   */
  R enqueue(CollectiveCall call);

  /**
   * Replaces a buffer by the combination of all ranks' buffers.
   *
   * @param buffer all of it; of the same size on every rank
   * @param type of the elements
   * @param op how to combine values
   * @return as the class says
   * @throws InvalidUsage if the buffer's size is no multiple of an element's
   */
  default R allReduce(DeviceBuffer buffer, DataType type, ReduceOp op) {
    String label = Collective.ALL_REDUCE.label();
    InvalidUsage.requireNonNull(buffer, label, "buffer");
    InvalidUsage.requireNonNull(type, label, "type");
    return allReduce(buffer, buffer, type.elements(buffer.size(), label), type, op);
  }

  /** Combines all ranks' inputs; {@link CollectiveCall#allReduce}. */
  default R allReduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op) {
    return enqueue(CollectiveCall.allReduce(input, output, count, type, op));
  }

  /**
   * Replaces a view's elements by the combination of all ranks'; of the same size on every rank.
   */
  default R allReduce(DeviceView view, ReduceOp op) {
    InvalidUsage.requireNonNull(view, Collective.ALL_REDUCE.label(), "view");
    return allReduce(view, view, op);
  }

  /** Combines all ranks' inputs into an output of the same size. */
  default R allReduce(DeviceView input, DeviceView output, ReduceOp op) {
    long count = countOf(Collective.ALL_REDUCE, input, output, topology());
    return allReduce(input.buffer(), output.buffer(), count, input.type(), op);
  }

  /**
   * Sums all ranks' rows and passes each row of the sum to an epilogue; {@link FusedAllReduce}. The
   * input is undefined afterwards.
   */
  default R allReduce(
      DeviceBuffer input, long rows, long hidden, DataType type, Epilogue epilogue) {
    return enqueue(CollectiveCall.fusedAllReduce(input, rows, hidden, type, epilogue));
  }

  /**
   * Sums all ranks' rows, adds the residual stream and norms each row, as {@link AddRmsNorm} says:
   * {@code residualOut = sum + residual; normOut = RMSNorm(residualOut) * (weight + weightBias)}.
   *
   * @param input this rank's rows; undefined afterwards
   * @param residual the same number of rows, equal on every rank
   * @param weight a row, whose size is that of all rows
   * @param epsilon more than 0
   * @param weightBias 0, or 1 for models that store weights minus one
   * @param residualOut may be the residual
   * @param normOut may be the input
   */
  default R allReduceAddRmsNorm(
      DeviceView input,
      DeviceView residual,
      DeviceView weight,
      float epsilon,
      float weightBias,
      DeviceView residualOut,
      DeviceView normOut) {
    requireRows(input, residual, weight, residualOut, normOut);
    AddRmsNorm norm =
        new AddRmsNorm(
            residual.buffer(),
            weight.buffer(),
            epsilon,
            weightBias,
            residualOut.buffer(),
            normOut.buffer());
    long hidden = weight.size();
    return allReduce(input.buffer(), input.size() / hidden, hidden, input.type(), norm);
  }

  /** Gathers all ranks' inputs, concatenated in rank order; {@link CollectiveCall#allGather}. */
  default R allGather(DeviceBuffer input, DeviceBuffer output, long count, DataType type) {
    return enqueue(CollectiveCall.allGather(input, output, count, type));
  }

  /** Gathers all ranks' inputs in an output of n times the size. */
  default R allGather(DeviceView input, DeviceView output) {
    long count = countOf(Collective.ALL_GATHER, input, output, topology());
    return allGather(input.buffer(), output.buffer(), count, input.type());
  }

  /** Gives this rank its share of the combination; {@link CollectiveCall#reduceScatter}. */
  default R reduceScatter(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op) {
    return enqueue(CollectiveCall.reduceScatter(input, output, count, type, op));
  }

  /** Gives this rank its share of the combination; the input has n times the output's size. */
  default R reduceScatter(DeviceView input, DeviceView output, ReduceOp op) {
    long count = countOf(Collective.REDUCE_SCATTER, input, output, topology());
    return reduceScatter(input.buffer(), output.buffer(), count, input.type(), op);
  }

  /**
   * Replaces a buffer by the root's.
   *
   * @param buffer {@code count} elements from its start
   * @param count elements
   * @param type of the elements
   * @param root the rank whose buffer all ranks get
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

  /** Replaces a view's elements by the root's; of the same size on every rank. */
  default R broadcast(DeviceView view, int root) {
    InvalidUsage.requireNonNull(view, Collective.BROADCAST.label(), "view");
    return broadcast(view, view, root);
  }

  /** Copies the root's input to every rank's output; the input may be null elsewhere. */
  default R broadcast(DeviceView input, DeviceView output, int root) {
    long count = countOf(Collective.BROADCAST, input, output, topology());
    return broadcast(bufferOf(input), output.buffer(), count, output.type(), root);
  }

  /** Combines all ranks' inputs on the root; {@link CollectiveCall#reduce}. */
  default R reduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op, int root) {
    return enqueue(CollectiveCall.reduce(input, output, count, type, op, root));
  }

  /** Combines all ranks' inputs on the root; the output may be null elsewhere. */
  default R reduce(DeviceView input, DeviceView output, ReduceOp op, int root) {
    long count = countOf(Collective.REDUCE, input, output, topology());
    return reduce(input.buffer(), bufferOf(output), count, input.type(), op, root);
  }

  /**
   * Makes share j of rank i's input share i of rank j's output; {@link CollectiveCall#allToAll}.
   */
  default R allToAll(DeviceBuffer input, DeviceBuffer output, long count, DataType type) {
    return enqueue(CollectiveCall.allToAll(input, output, count, type));
  }

  /** Makes share j of rank i's input share i of rank j's output; n equal shares in each. */
  default R allToAll(DeviceView input, DeviceView output) {
    long count = countOf(Collective.ALL_TO_ALL, input, output, topology());
    return allToAll(input.buffer(), output.buffer(), count, input.type());
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

  /** Does an all-to-all with shares of any sizes, between views of one type. */
  default R allToAllv(
      DeviceView input, long[] sendCounts, DeviceView output, long[] receiveCounts) {
    DataType type = typeOf(Collective.ALL_TO_ALL_V, input, output);
    return allToAllv(input.buffer(), sendCounts, output.buffer(), receiveCounts, type);
  }

  /** Does an all-to-all whose counts the kernel reads from the device; {@link DeviceAllToAllV}. */
  default R allToAllv(
      DeviceBuffer input,
      DeviceBuffer output,
      DeviceAllToAllV.Counts counts,
      long most,
      DataType type) {
    return enqueue(CollectiveCall.allToAllv(input, output, counts, most, type));
  }

  /**
   * Sends each token to the ranks that have its experts; {@link Dispatch} describes the buffers.
   * Scales are null for BFLOAT16.
   */
  default R dispatch(
      ExpertBatch batch,
      DeviceBuffer input,
      DeviceBuffer scales,
      DeviceBuffer output,
      DeviceBuffer outputScales) {
    return enqueue(new Dispatch(batch, input, scales, output, outputScales));
  }

  /** Adds up what this rank's tokens get from their experts' ranks; {@link Combine}. */
  default R combine(ExpertBatch batch, DeviceBuffer input, DeviceBuffer output) {
    return combine(batch, input, null, output);
  }

  /** Adds up the rows that the experts give, each times its weight; {@link Combine}. */
  default R combine(ExpertBatch batch, DeviceBuffer input, DeviceBuffer rows, DeviceBuffer output) {
    return enqueue(new Combine(batch, input, rows, output));
  }

  /** Gathers all ranks' inputs on the root; {@link CollectiveCall#gather}. */
  default R gather(DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return enqueue(CollectiveCall.gather(input, output, count, type, root));
  }

  /** Gathers all ranks' inputs on the root; the output may be null elsewhere. */
  default R gather(DeviceView input, DeviceView output, int root) {
    long count = countOf(Collective.GATHER, input, output, topology());
    return gather(input.buffer(), bufferOf(output), count, input.type(), root);
  }

  /** Gives this rank its share of the root's input; {@link CollectiveCall#scatter}. */
  default R scatter(DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return enqueue(CollectiveCall.scatter(input, output, count, type, root));
  }

  /** Gives this rank its share of the root's input, which may be null elsewhere. */
  default R scatter(DeviceView input, DeviceView output, int root) {
    long count = countOf(Collective.SCATTER, input, output, topology());
    return scatter(bufferOf(input), output.buffer(), count, output.type(), root);
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

  /** Sends all elements of a view to one rank; otherwise as the other method. */
  default R send(DeviceView input, int destination) {
    InvalidUsage.requireNonNull(input, "send", "input");
    return send(input.buffer(), input.size(), input.type(), destination);
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

  /** Receives all elements of a view, which one rank sends. */
  default R recv(DeviceView output, int source) {
    InvalidUsage.requireNonNull(output, "recv", "output");
    return recv(output.buffer(), output.size(), output.type(), source);
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

  /** Sends all elements of a view to one rank and receives a whole view from another at once. */
  default R sendReceive(DeviceView input, int destination, DeviceView output, int source) {
    DataType type = typeOf(Collective.SEND_RECEIVE, input, output);
    return sendReceive(
        input.buffer(), input.size(), destination, output.buffer(), output.size(), source, type);
  }

  /** Completes when every rank has enqueued it and all that it enqueued before is done. */
  default R barrier() {
    return enqueue(CollectiveCall.barrier());
  }

  /** Returns the type of two views; refuses null, and views of different types. */
  private static DataType typeOf(Collective collective, DeviceView input, DeviceView output) {
    InvalidUsage.requireNonNull(input, collective.label(), "input");
    InvalidUsage.requireNonNull(output, collective.label(), "output");
    if (input.type() != output.type()) {
      throw InvalidUsage.of(
          "%s: from %s to %s; give views of the same type", collective.label(), input, output);
    }
    return input.type();
  }

  private static DeviceBuffer bufferOf(DeviceView view) {
    return view == null ? null : view.buffer();
  }

  /**
   * Returns the count of a call between whole views.
   *
   * @param input null where only the root has an input
   * @param output null where only the root has an output
   * @throws InvalidUsage if a view that is needed is null, or the views differ in type or do not
   *     fit each other
   */
  private static long countOf(
      Collective collective, DeviceView input, DeviceView output, RankTopology topology) {
    boolean mayLackInput = collective.hasInputOnRootOnly() && output != null;
    boolean mayLackOutput = collective.hasOutputOnRootOnly() && input != null;
    if (!mayLackInput) {
      InvalidUsage.requireNonNull(input, collective.label(), "input");
    }
    if (!mayLackOutput) {
      InvalidUsage.requireNonNull(output, collective.label(), "output");
    }
    int in = collective.hasInputShares() ? topology.nRanks() : 1;
    int out = collective.hasOutputShares() ? topology.nRanks() : 1;
    long count = input == null ? output.size() / out : input.size() / in;
    boolean fits =
        (input == null || input.size() == count * in)
            && (output == null || output.size() == count * out)
            && (input == null || output == null || input.type() == output.type());
    if (!fits) {
      throw InvalidUsage.of(
          "%s on rank %d: from %s to %s; give views of the same type, the input of %s and the"
              + " output of %s, for %d ranks",
          collective.label(),
          topology.rank(),
          input,
          output,
          shape(in),
          shape(out),
          topology.nRanks());
    }
    return count;
  }

  /** Refuses views that are no rows of one type, as many in each; the third is a single row. */
  private static void requireRows(DeviceView... views) {
    String label = Collective.FUSED_ALL_REDUCE.label();
    for (DeviceView view : views) {
      InvalidUsage.requireNonNull(view, label, "view");
    }
    DeviceView rows = views[0];
    DeviceView row = views[2];
    for (DeviceView view : views) {
      boolean fits = view == row ? rows.size() % row.size() == 0 : view.size() == rows.size();
      if (row.size() == 0 || !fits || view.type() != rows.type()) {
        throw InvalidUsage.of(
            "%s of %s: %s has another type or size; the weight is one row, the others are as many"
                + " rows as the input",
            label, rows, view);
      }
    }
  }

  private static String shape(int shares) {
    return shares == 1 ? "count elements" : "count elements for each rank";
  }
}
