package io.fluxccl.samples.inference.engine;

import io.fluxccl.DataType;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.MatrixProduct;
import io.fluxccl.samples.inference.model.Tensor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A matrix of weights in a GPU's memory.
 *
 * @param product how to multiply by it; null for what is only read
 */
record CudaWeights(DeviceBuffer buffer, MatrixProduct product) implements Kernels.Weights {
  private static final int PIECE_BYTES = 4 << 20;

  /** Copies matrices of equal width, stacked. */
  static void upload(DataType type, DeviceBuffer target, Tensor... stacked) {
    long offset = 0;
    for (Tensor tensor : stacked) {
      upload(tensor, type, target, offset);
      offset += type.bytes((long) tensor.rows() * tensor.cols());
    }
  }

  /** Copies a part of a file, mapped into memory, to the GPU; in pieces where it must change. */
  private static void upload(Tensor tensor, DataType type, DeviceBuffer target, long offset) {
    boolean sameType = tensor.bfloat16() == (type == DataType.BFLOAT16);
    if (sameType && tensor.stride() == tensor.cols()) {
      int bytes = Math.toIntExact(type.bytes((long) tensor.rows() * tensor.cols()));
      int first = Math.toIntExact(type.bytes(tensor.offset()));
      target.upload(offset, tensor.data().slice(first, bytes).order(ByteOrder.LITTLE_ENDIAN));
      return;
    }
    int rowBytes = tensor.cols() * type.size();
    int rowsOfPiece = Math.max(1, PIECE_BYTES / rowBytes);
    ByteBuffer piece =
        ByteBuffer.allocateDirect(Math.min(rowsOfPiece, tensor.rows()) * rowBytes)
            .order(ByteOrder.LITTLE_ENDIAN);
    for (int first = 0; first < tensor.rows(); first += rowsOfPiece) {
      int rows = Math.min(rowsOfPiece, tensor.rows() - first);
      for (int row = 0; row < rows; row++) {
        copyRow(tensor, first + row, type, sameType, piece, row * rowBytes);
      }
      target.upload(offset + (long) first * rowBytes, piece.position(0).limit(rows * rowBytes));
      piece.clear();
    }
  }

  private static void copyRow(
      Tensor tensor, int row, DataType type, boolean sameType, ByteBuffer target, int at) {
    if (sameType) {
      long first = tensor.offset() + (long) row * tensor.stride();
      int from = Math.toIntExact(type.bytes(first));
      target.put(at, tensor.data(), from, tensor.cols() * type.size());
      return;
    }
    for (int col = 0; col < tensor.cols(); col++) {
      float value = tensor.get(row, col);
      if (type == DataType.FLOAT32) {
        target.putFloat(at + col * Float.BYTES, value);
      } else {
        target.putShort(at + col * Short.BYTES, bfloat16(value));
      }
    }
  }

  /** Rounds to the nearest, or of two to the even one. */
  private static short bfloat16(float value) {
    int bits = Float.floatToIntBits(value);
    return (short) (Float.isNaN(value) ? bits >>> 16 : bits + 0x7fff + (bits >>> 16 & 1) >>> 16);
  }
}
