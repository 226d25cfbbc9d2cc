// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.AddRmsNorm.WithRowScales;
import io.fluxccl.collective.AddRmsNorm.WithScale;

/**
 * The signature of a call: what must be the same on every rank, as two numbers. The first packs
 * kind, type, operation and root, and a hash of all that has no place in it. The second is the
 * count. Messages between ranks carry 32 bits of both. Allocates nothing for a call.
 *
 * <pre>
 *   bits 0 to 4     kind + 1
 *   bits 5 to 9     type + 1, or 0
 *   bits 10 to 13   operation + 1, or 0
 *   bits 14 to 31   root + 1, or 0
 *   bits 32 to 63   hash of stride, epilogue, shape; of a plain all-reduce, the type as which its
 *                   elements travel + 1, or 0
 * </pre>
 */
final class CallSignature {
  private static final Collective[] KINDS = Collective.values();
  private static final DataType[] TYPES = DataType.values();
  private static final ReduceOp[] OPS = ReduceOp.values();
  private static final int TYPE_SHIFT = 5;
  private static final int OP_SHIFT = 10;
  private static final int ROOT_SHIFT = 14;
  private static final int HASH_SHIFT = 32;
  private static final int ROOT_MASK = (1 << HASH_SHIFT - ROOT_SHIFT) - 1;
  private static final long FACTOR = 0x9E3779B97F4A7C15L;

  private CallSignature() {}

  /** Returns the first number of a call's signature. */
  static long what(CollectiveCall call) {
    long what = kind(call.collective(), call.type());
    if (call.op() != null) {
      what |= call.op().ordinal() + 1L << OP_SHIFT;
    }
    what |= (long) (call.root() + 1 & ROOT_MASK) << ROOT_SHIFT;
    return what | (long) hash(call) << HASH_SHIFT;
  }

  /**
   * Returns the first number of a plain all-reduce whose elements travel as a type; null: as own.
   */
  static long what(CollectiveCall call, DataType wire) {
    return what(call) | (wire == null ? 0 : wire.ordinal() + 1L << HASH_SHIFT);
  }

  private static long kind(Collective kind, DataType type) {
    return kind.ordinal() + 1L | (type == null ? 0 : type.ordinal() + 1L << TYPE_SHIFT);
  }

  /** Returns the second number of a call's signature; 0 if the ranks' counts may differ. */
  static long count(CollectiveCall call) {
    boolean mayDiffer = call instanceof AllToAllV || call instanceof SendReceive;
    return mayDiffer ? 0 : call.count();
  }

  /** Returns the bytes that travel of a plain all-reduce; -1 for any other call. */
  static long allReduceBytes(long what, long count) {
    int type = (int) (what >>> TYPE_SHIFT & (1 << OP_SHIFT - TYPE_SHIFT) - 1) - 1;
    int kind = (int) (what & (1 << TYPE_SHIFT) - 1) - 1;
    boolean isPlain =
        kind == Collective.ALL_REDUCE.ordinal() && type >= 0 && type < TYPES.length && count >= 0;
    DataType wire = wire(what);
    return isPlain ? count * (wire == null ? TYPES[type] : wire).size() : -1;
  }

  /** Returns the type as which a plain all-reduce travels; null: its own, or another call. */
  private static DataType wire(long what) {
    int wire = (int) (what >>> HASH_SHIFT);
    boolean isAllReduce = (what & (1 << TYPE_SHIFT) - 1) - 1 == Collective.ALL_REDUCE.ordinal();
    return isAllReduce && wire > 0 && wire <= TYPES.length ? TYPES[wire - 1] : null;
  }

  /** Returns the signature that messages carry, in 32 bits. */
  static int of(CollectiveCall call) {
    return of(what(call), count(call));
  }

  /** Returns the signature of these two numbers that messages carry. */
  static int of(long what, long count) {
    return (int) (mix(what, count) >>> Integer.SIZE);
  }

  /**
   * Returns the signature of the messages from one rank to another: that of the call, and the bytes
   * of both directions if only these two ranks know them.
   */
  static int between(int signature, CollectiveCall call, long bytes, long back) {
    boolean mayDiffer = call instanceof AllToAllV || call instanceof SendReceive;
    return mayDiffer ? (int) (mix(mix(signature, bytes), back) >>> Integer.SIZE) : signature;
  }

  /** Returns a hash of a sequence of numbers, one number longer. */
  static long mix(long hash, long number) {
    long mixed = (hash ^ number * FACTOR) * FACTOR;
    return mixed ^ mixed >>> Integer.SIZE;
  }

  private static int hash(CollectiveCall call) {
    if (call instanceof UniformCall uniform) {
      return uniform.isPartOfShares() ? fold(uniform.stride()) : 0;
    }
    if (call instanceof FusedAllReduce fused) {
      return fold(mix(fused.hidden(), hash(fused.epilogue())));
    }
    if (call instanceof Dispatch dispatch) {
      return hash(dispatch.batch().shape());
    }
    if (call instanceof Combine combine) {
      return hash(combine.batch().shape()) + (combine.rows() == null ? 0 : 1);
    }
    return call instanceof DeviceAllToAllV ? 1 : 0;
  }

  private static int hash(ExpertShape shape) {
    long sizes = mix(mix(shape.tokens(), shape.topK()), shape.experts());
    return fold(mix(mix(sizes, shape.hidden()), shape.type().ordinal()));
  }

  private static long hash(Epilogue epilogue) {
    if (epilogue instanceof AddRmsNorm norm) {
      long floats =
          mix(Float.floatToIntBits(norm.epsilon()), Float.floatToIntBits(norm.weightBias()));
      if (norm.quantization() instanceof WithScale fixed) {
        return mix(floats, Float.floatToIntBits(fixed.scale()));
      }
      return norm.quantization() instanceof WithRowScales ? floats + 1 : floats;
    }
    // A string keeps its hash.
    return epilogue instanceof CustomEpilogue custom
        ? custom.kernels().name().hashCode()
        : ((HostEpilogue) epilogue).name().hashCode();
  }

  private static int fold(long hash) {
    return (int) (mix(hash, 1) >>> Integer.SIZE);
  }

  /**
   * Returns a signature as a text, for example {@code all-reduce(count=256, INT32, SUM)}.
   *
   * @param what may be from a peer: any bits
   * @param isHashShown whether the text has the hash, because nothing else differs
   */
  static String text(long what, long count, boolean isHashShown) {
    int kind = (int) (what & (1 << TYPE_SHIFT) - 1) - 1;
    int type = (int) (what >>> TYPE_SHIFT & (1 << OP_SHIFT - TYPE_SHIFT) - 1) - 1;
    int op = (int) (what >>> OP_SHIFT & (1 << ROOT_SHIFT - OP_SHIFT) - 1) - 1;
    int root = (int) (what >>> ROOT_SHIFT & ROOT_MASK) - 1;
    StringBuilder text = new StringBuilder();
    text.append(kind >= 0 && kind < KINDS.length ? KINDS[kind].label() : "an unknown call");
    if (kind == Collective.BARRIER.ordinal()) {
      return text.toString();
    }
    text.append("(count=").append(count);
    if (type >= 0 && type < TYPES.length) {
      text.append(", ").append(TYPES[type]);
    }
    if (wire(what) != null) {
      text.append(" as ").append(wire(what));
    }
    if (op >= 0 && op < OPS.length) {
      text.append(", ").append(OPS[op]);
    }
    if (root >= 0) {
      text.append(", root=").append(root);
    }
    if (isHashShown) {
      text.append(", shape or epilogue #").append(Integer.toHexString((int) (what >>> HASH_SHIFT)));
    }
    return text.append(')').toString();
  }
}
