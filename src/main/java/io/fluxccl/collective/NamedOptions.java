// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import java.util.EnumSet;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;
import java.util.function.ToIntFunction;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * How {@link NamedCollectives} group and order all-reduces. Immutable.
 *
 * <pre>{@code
 * // The gradients of the first layers are reduced first: the next forward pass begins with them.
 * NamedOptions options = NamedOptions.DEFAULT.withPriority(name -> -layerOf(name));
 * NamedCollectives named = collectives.named(options).join();
 * }</pre>
 *
 * @param bucketBytes the most bytes of one bucket, which every rank allocates; 0: no all-reduces
 *     are fused, and each begins as soon as all ranks are ready. All ranks must give the same
 * @param priority of a name: among all-reduces that wait, those of the greatest priority begin
 *     first; other calls don't wait. Only the function of rank 0 counts, and only with buckets; a
 *     thread of the library calls it once for each all-reduce
 * @param compression of a name: the type as which the elements of its all-reduces travel between
 *     ranks, FLOAT16, BFLOAT16 or FLOAT8_E4M3; empty: as they are. All ranks must give a name the
 *     same. It needs buckets; it is for FLOAT32 and not for products, and other calls of the name
 *     are refused, except barriers. All ranks get the same bits. Each value is rounded before it
 *     travels, and each sum of values again: as FLOAT16 by 2^-11 of it, or by 2^-25 if that is more
 *     (a value, or the sum of a SUM or an AVG, of more than 65504 becomes infinite); by 2^-8 as
 *     BFLOAT16; by 2^-4 as FLOAT8_E4M3, or by the number of ranks x 2^-16 of the tensor's largest
 *     value on any rank, if that is more. If that one is infinite or NaN, the result as FLOAT8_E4M3
 *     has only NaN; of a tensor that is longer than a bucket, each bucketful by itself. The time
 *     that FLOAT8_E4M3 takes on GPUs was not measured. Neither function is called for names that
 *     begin with {@code fluxccl.}, which the library uses
 */
@Experimental
public record NamedOptions(
    long bucketBytes,
    ToIntFunction<String> priority,
    Function<String, Optional<DataType>> compression) {
  private static final Logger LOG = LoggerFactory.getLogger(NamedOptions.class);

  /** Buckets of up to 4 MiB, no priorities, and no compression. */
  public static final NamedOptions DEFAULT =
      new NamedOptions(4 << 20, name -> 0, name -> Optional.empty());

  private static final Set<DataType> COMPRESSED =
      EnumSet.of(DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT8_E4M3);

  /** Buckets through which compressed values of any size travel in pieces of some size. */
  private static final int LEAST_COMPRESSED_BYTES = 4096;

  /** The longest tensor that is copied into a bucket; a call of its own costs less for others. */
  private static final long MOST_MEMBER_BYTES = 1 << 20;

  private static final long MOST_BYTES = 1 << 30;

  /** The begin of names that the library uses itself: users' functions don't know them. */
  private static final String OWN_NAMES = "fluxccl.";

  /** Refuses a size out of range, and null. */
  public NamedOptions {
    InvalidUsage.requireNonNull(priority, "named collectives", "priority");
    InvalidUsage.requireNonNull(compression, "named collectives", "compression");
    if (bucketBytes < 0 || bucketBytes > MOST_BYTES) {
      throw InvalidUsage.of(
          "bucketBytes=%d; give 0 for no buckets, to %d", bucketBytes, MOST_BYTES);
    }
  }

  /** Returns these options with other buckets; 0: none. */
  public NamedOptions withBucketBytes(long bytes) {
    return new NamedOptions(bytes, priority, compression);
  }

  /** Returns these options with priorities of names. */
  public NamedOptions withPriority(ToIntFunction<String> of) {
    return new NamedOptions(bucketBytes, of, compression);
  }

  /** Returns these options with compression by name. */
  public NamedOptions withCompression(Function<String, Optional<DataType>> of) {
    return new NamedOptions(bucketBytes, priority, of);
  }

  /** Returns the type as which the elements of a call travel, or null: as they are. */
  DataType wireType(String name, CollectiveCall call) {
    DataType wire = call.collective() == Collective.BARRIER ? null : compressionOf(name);
    if (wire == null) {
      return null;
    }
    boolean isPossible =
        call.collective() == Collective.ALL_REDUCE
            && call.type() == DataType.FLOAT32
            && call.op() != ReduceOp.PROD;
    if (!isPossible || !COMPRESSED.contains(wire) || bucketBytes < LEAST_COMPRESSED_BYTES) {
      throw InvalidUsage.of(
          "named call '%s': %s can't travel as %s, with bucketBytes=%d; compress only all-reduces"
              + " of FLOAT32 that are no products, to one of %s, with bucketBytes of %d or more",
          name, call, wire, bucketBytes, COMPRESSED, LEAST_COMPRESSED_BYTES);
    }
    return wire;
  }

  private DataType compressionOf(String name) {
    if (name.startsWith(OWN_NAMES)) {
      return null;
    }
    Optional<DataType> type;
    try {
      type = compression.apply(name);
    } catch (RuntimeException e) {
      throw new InvalidUsage(
          "named call '" + name + "': the compression function fails for this name: " + e, e);
    }
    if (type == null) {
      throw InvalidUsage.of(
          "named call '%s': the compression function returns null; return Optional.empty() for"
              + " none",
          name);
    }
    return type.orElse(null);
  }

  /** Returns the priority of a name; 0 if the function fails. */
  int priorityOf(String name) {
    try {
      return name.startsWith(OWN_NAMES) ? 0 : priority.applyAsInt(name);
    } catch (RuntimeException | Error e) { // the thread that calls it serves all calls
      LOG.warn("the priority of name '{}' is not known", name, e);
      return 0;
    }
  }

  /** Returns the most bytes of an all-reduce that is fused. */
  long memberBytes() {
    return Math.min(bucketBytes, MOST_MEMBER_BYTES);
  }
}
