// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;

/**
 * The shape of one rank's products by {@link OverlappedProducts}; the same on every rank.
 *
 * @param inputs columns of a rank's weights, the width of the matrix that it multiplies
 * @param outputs rows of a rank's weights, the width of its product
 * @param type of all matrices: BFLOAT16 or FLOAT16
 * @param maxRows the most rows of a whole matrix: of a product before a reduce-scatter, after an
 *     all-gather
 */
@Experimental
public record ProductShape(int inputs, int outputs, DataType type, int maxRows) {
  /** Refuses sizes less than 1 and other types. */
  public ProductShape {
    InvalidUsage.requireNonNull(type, "product shape", "type");
    if (type != DataType.BFLOAT16 && type != DataType.FLOAT16) {
      throw InvalidUsage.of("product shape: type=%s; give BFLOAT16 or FLOAT16", type);
    }
    if (inputs < 1 || outputs < 1 || maxRows < 1) {
      throw InvalidUsage.of(
          "product shape: inputs=%d, outputs=%d, maxRows=%d; give 1 or more of each",
          inputs, outputs, maxRows);
    }
  }

  /** Refuses packed weights whose product is another matrix. */
  void require(PackedMatrix weights, int rank) {
    if (weights.inputs() != inputs
        || weights.outputs() != outputs
        || weights.type() != type
        || weights.result() != PackedMatrix.Result.ELEMENTS) {
      throw InvalidUsage.of(
          "matmul-all-reduce on rank %d: the weights have inputs=%d, outputs=%d, type=%s,"
              + " result=%s; give packed weights with inputs=%d, outputs=%d, type=%s,"
              + " result=ELEMENTS",
          rank,
          weights.inputs(),
          weights.outputs(),
          weights.type(),
          weights.result(),
          inputs,
          outputs,
          type);
    }
  }

  long inBytes(long rows) {
    return type.bytes(rows * inputs);
  }

  long outBytes(long rows) {
    return type.bytes(rows * outputs);
  }

  long weightBytes() {
    return type.bytes((long) inputs * outputs);
  }
}
