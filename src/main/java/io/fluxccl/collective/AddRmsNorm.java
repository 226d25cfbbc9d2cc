// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * Adds the residual stream to each row and norms the sum (RMSNorm):
 *
 * <pre>
 *   residualOut = round(sum over the ranks + residual)
 *   normOut     = round(residualOut / sqrt(mean(residualOut^2) + epsilon) * (weight + weightBias))
 *   quantized   = normOut / scale, as FLOAT8_E4M3
 * </pre>
 *
 * <p>All matrices but the quantised one have the call's type and shape. {@code residualOut} and
 * {@code normOut} may be the input or the residual, with the same beginning; otherwise no output
 * may overlap another matrix. The input, which may be replaced by the sums before the others are
 * read, may not overlap the residual or the weight. Immutable; {@code with...} methods give a
 * changed copy.
 *
 * @param residual a row for each row of the call, the same on every rank
 * @param weight a row
 * @param epsilon more than 0
 * @param weightBias added to the weight: 1 for models whose weights are stored that way, else 0
 * @param residualOut may be the residual; null if it is not needed
 * @param normOut null if only the quantised rows are needed
 * @param quantization of the normed rows
 */
@Experimental
public record AddRmsNorm(
    DeviceBuffer residual,
    DeviceBuffer weight,
    float epsilon,
    float weightBias,
    DeviceBuffer residualOut,
    DeviceBuffer normOut,
    Quantization quantization)
    implements Epilogue.OnGpus {
  /** The quantisation of normed rows. */
  public sealed interface Quantization {
    /** Returns what it needs of a call's rows. */
    private Stream<DeviceBuffer> buffers() {
      if (this instanceof WithScale fixed) {
        return Stream.of(fixed.out());
      }
      return this instanceof WithRowScales perRow
          ? Stream.of(perRow.out(), perRow.scales())
          : Stream.empty();
    }
  }

  /** Rows are not quantised. */
  public record NotQuantized() implements Quantization {}

  /**
   * With one scale for all.
   *
   * @param out a byte for each element
   * @param scale by which quantised values are to be multiplied
   */
  public record WithScale(DeviceBuffer out, float scale) implements Quantization {
    /** Refuses null, and a scale that is not positive. */
    public WithScale {
      InvalidUsage.requireNonNull(out, "quantization", "out");
      if (!(scale > 0) || Float.isInfinite(1 / scale)) {
        throw new InvalidUsage("quantization scale=" + scale + "; give a positive number");
      }
    }
  }

  /**
   * With a scale for each row: its largest magnitude by 448, the largest of the type.
   *
   * @param out a byte for each element
   * @param scales an output: a FLOAT32 for each row
   */
  public record WithRowScales(DeviceBuffer out, DeviceBuffer scales) implements Quantization {
    /** Refuses null. */
    public WithRowScales {
      InvalidUsage.requireNonNull(out, "quantization", "out");
      InvalidUsage.requireNonNull(scales, "quantization", "scales");
    }
  }

  private static final Quantization NONE = new NotQuantized();

  /** Alignment of the quantised output. */
  private static final int WORDS = 2 * Integer.BYTES;

  /** Refuses null, an epsilon that is not positive, and an epilogue without a normed output. */
  public AddRmsNorm {
    InvalidUsage.requireNonNull(residual, "add-rms-norm", "residual");
    InvalidUsage.requireNonNull(weight, "add-rms-norm", "weight");
    InvalidUsage.requireNonNull(quantization, "add-rms-norm", "quantization");
    if (!(epsilon > 0) || Float.isInfinite(epsilon) || !Float.isFinite(weightBias)) {
      throw new InvalidUsage(
          "add-rms-norm epsilon="
              + epsilon
              + " weightBias="
              + weightBias
              + "; give a positive epsilon and a finite bias");
    }
    if (normOut == null && quantization instanceof NotQuantized) {
      throw new InvalidUsage("add-rms-norm normOut=null; give it, or a quantised output");
    }
  }

  /** Norms without quantising; see the class. */
  public AddRmsNorm(
      DeviceBuffer residual,
      DeviceBuffer weight,
      float epsilon,
      float weightBias,
      DeviceBuffer residualOut,
      DeviceBuffer normOut) {
    this(residual, weight, epsilon, weightBias, residualOut, normOut, NONE);
  }

  /** Returns this with rows quantised, and with or without {@link #normOut}. */
  public AddRmsNorm withQuantization(Quantization how, boolean keepsNorm) {
    return new AddRmsNorm(
        residual, weight, epsilon, weightBias, residualOut, keepsNorm ? normOut : null, how);
  }

  @Override
  public List<DeviceBuffer> buffers() {
    return Stream.concat(
            Stream.of(residual, weight, residualOut, normOut).filter(Objects::nonNull),
            quantization.buffers())
        .toList();
  }

  @Override
  public String signature() {
    String how =
        quantization instanceof WithScale fixed
            ? " scale=" + fixed.scale()
            : quantization instanceof WithRowScales ? " row scales" : "";
    return Text.of("add-rms-norm(epsilon=%s weightBias=%s%s)", epsilon, weightBias, how);
  }

  @Override
  public void check(FusedAllReduce call, BufferCheck check) {
    long bytes = call.countBytes();
    check.require("residual", residual, bytes, FusedAllReduce.WORD);
    check.require("weight", weight, call.rowBytes(), FusedAllReduce.WORD);
    requireApart(check, "residual", residual, bytes, "input", call.input(), bytes);
    requireApart(check, "weight", weight, call.rowBytes(), "input", call.input(), bytes);
    checkMatrix(call, check, "residualOut", residualOut);
    checkMatrix(call, check, "normOut", normOut);
    requireApart(check, "normOut", normOut, bytes, "residualOut", residualOut, bytes);
    if (quantization instanceof WithScale fixed) {
      checkQuantized(call, check, "quantised output", fixed.out(), call.count(), WORDS);
    } else if (quantization instanceof WithRowScales perRow) {
      long scaleBytes = DataType.FLOAT32.bytes(call.rows());
      DeviceBuffer scales = perRow.scales();
      checkQuantized(call, check, "quantised output", perRow.out(), call.count(), WORDS);
      checkQuantized(call, check, "row scales", scales, scaleBytes, Float.BYTES);
      requireApart(
          check, "row scales", scales, scaleBytes, "quantised output", perRow.out(), call.count());
    }
  }

  private void checkMatrix(FusedAllReduce call, BufferCheck check, String what, DeviceBuffer out) {
    if (out == null) {
      return;
    }
    long bytes = call.countBytes();
    check.require(what, out, bytes, FusedAllReduce.WORD);
    requireApart(check, what, out, bytes, "weight", weight, call.rowBytes());
    if (!beginsAt(out, call.input())) {
      requireApart(check, what, out, bytes, "input", call.input(), bytes);
    }
    if (!beginsAt(out, residual)) {
      requireApart(check, what, out, bytes, "residual", residual, bytes);
    }
  }

  private static boolean beginsAt(DeviceBuffer out, DeviceBuffer other) {
    return other != null && out.address() == other.address();
  }

  /** Warps write quantised rows and their scales while others still read their rows. */
  private void checkQuantized(
      FusedAllReduce call, BufferCheck check, String what, DeviceBuffer out, long size, int word) {
    long bytes = call.countBytes();
    check.require(what, out, size, word);
    requireApart(check, what, out, size, "weight", weight, call.rowBytes());
    requireApart(check, what, out, size, "input", call.input(), bytes);
    requireApart(check, what, out, size, "residual", residual, bytes);
    requireApart(check, what, out, size, "residualOut", residualOut, bytes);
    requireApart(check, what, out, size, "normOut", normOut, bytes);
  }

  private static void requireApart(
      BufferCheck check,
      String what,
      DeviceBuffer out,
      long size,
      String otherWhat,
      DeviceBuffer other,
      long otherSize) {
    boolean overlaps =
        out != null
            && other != null
            && out.address() < other.address() + otherSize
            && other.address() < out.address() + size;
    if (overlaps) {
      check.refuse("the " + what + " and the " + otherWhat + " overlap; give each its own memory");
    }
  }

  @Override
  public EpilogueKernels kernels() {
    return quantization instanceof NotQuantized
        ? EpilogueKernels.BuiltIn.NORM
        : EpilogueKernels.BuiltIn.NORM_QUANTIZED;
  }

  /** Returns the structure of {@code add_rms_norm.cuh}. */
  @Override
  public DeviceHandle argument() {
    DeviceBuffer quantized = null;
    DeviceBuffer scales = null;
    float inverse = 0;
    if (quantization instanceof WithScale fixed) {
      quantized = fixed.out();
      inverse = 1 / fixed.scale();
    } else if (quantization instanceof WithRowScales perRow) {
      quantized = perRow.out();
      scales = perRow.scales();
    }
    return new KernelStruct(64)
        .putAddress(residual)
        .putAddress(weight)
        .putAddress(residualOut)
        .putAddress(normOut)
        .putAddress(quantized)
        .putAddress(scales)
        .putInt(Float.floatToRawIntBits(epsilon))
        .putInt(Float.floatToRawIntBits(weightBias))
        .putInt(Float.floatToRawIntBits(inverse));
  }
}
