// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.dataparallel;

import io.fluxccl.device.Device;
import io.fluxccl.device.FloatView;
import java.util.LinkedHashMap;
import java.util.Map;
import org.bytedeco.javacpp.Pointer;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.global.torch;

/**
 * One block of FluxCCL's memory with the tensors of all layers, without copies: PyTorch computes in
 * it, and the other ranks of this host map it. Each tensor begins at a multiple of 128 bytes.
 */
final class TensorMemory {
  private static final int ALIGNMENT = 32;

  /** All of it, with the gaps. */
  final FloatView view;

  final Tensor all;
  private final Map<String, FloatView> layers = new LinkedHashMap<>();

  /** The shapes of tensors, by layer and then by name. */
  record Shapes(Map<String, Map<String, long[]>> layers) {
    static long size(long[] shape) {
      long size = 1;
      for (long each : shape) {
        size *= each;
      }
      return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }

    long size() {
      return layers.values().stream()
          .flatMap(layer -> layer.values().stream())
          .mapToLong(Shapes::size)
          .sum();
    }
  }

  /**
   * @param tensors gets the tensors, by layer and name
   */
  TensorMemory(Device device, Shapes shapes, Map<String, Tensor> tensors) {
    view = device.allocateFloats((int) shapes.size());
    all = wrap(view, view.size());
    long next = 0;
    for (Map.Entry<String, Map<String, long[]>> layer : shapes.layers().entrySet()) {
      long first = next;
      for (Map.Entry<String, long[]> tensor : layer.getValue().entrySet()) {
        long size = Shapes.size(tensor.getValue());
        String name = layer.getKey() + "." + tensor.getKey();
        tensors.put(name, wrap(view.slice(next, size), tensor.getValue()));
        next += size;
      }
      layers.put(layer.getKey(), view.slice(first, next - first));
    }
  }

  /** Returns the memory of each layer. */
  Map<String, FloatView> layers() {
    return layers;
  }

  private static Tensor wrap(FloatView memory, long... shape) {
    return torch.from_blob(new At(memory.buffer().address()), shape);
  }

  private static final class At extends Pointer {
    At(long start) {
      address = start;
    }
  }
}
