// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.dataparallel;

import io.fluxccl.device.Device;
import io.fluxccl.samples.dataparallel.TensorMemory.Shapes;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.function.Consumer;
import org.bytedeco.javacpp.LongPointer;
import org.bytedeco.pytorch.DoubleOptional;
import org.bytedeco.pytorch.NoGradGuard;
import org.bytedeco.pytorch.Scalar;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.TensorBase;
import org.bytedeco.pytorch.TensorOptional;
import org.bytedeco.pytorch.TensorOptions;
import org.bytedeco.pytorch.VoidTensorHook;
import org.bytedeco.pytorch.global.torch;

/** A small GPT on PyTorch, whose weights, gradients and momenta are in FluxCCL's memory. */
final class Gpt {
  static final int CONTEXT = 32;
  private static final int VOCABULARY = 64;
  private static final int WIDTH = 96;
  private static final int HEADS = 4;
  private static final int BLOCKS = 4;
  private static final double RATE = 0.05;
  private static final double MOMENTUM = 0.9;

  final TensorMemory weights;
  final TensorMemory gradients;
  final TensorMemory momenta;
  private final Map<String, Tensor> tensors = new LinkedHashMap<>();
  private final Map<String, Hook> hooks = new LinkedHashMap<>();

  /** The layer whose last gradient PyTorch is about to add up; null if there is none. */
  private String pending;

  private Consumer<String> ready = layer -> {};

  Gpt(Device device) {
    Shapes shapes = new Shapes(shapes());
    weights = new TensorMemory(device, shapes, tensors);
    Map<String, Tensor> gradientTensors = new LinkedHashMap<>();
    gradients = new TensorMemory(device, shapes, gradientTensors);
    momenta = new TensorMemory(device, shapes, new LinkedHashMap<>());
    torch.manual_seed(1);
    tensors.forEach(
        (name, tensor) -> {
          initialize(name, tensor);
          tensor.set_requires_grad(true);
          tensor.mutable_grad().put(gradientTensors.get(name));
          String layer = name.substring(0, name.indexOf('.'));
          hooks.computeIfAbsent(layer, Hook::new).count(tensor);
        });
  }

  private static Map<String, Map<String, long[]>> shapes() {
    Map<String, Map<String, long[]>> layers = new LinkedHashMap<>();
    add(layers, "input", "token", VOCABULARY, WIDTH);
    add(layers, "input", "position", CONTEXT, WIDTH);
    for (int block = 0; block < BLOCKS; block++) {
      String layer = "block" + block;
      add(layers, layer, "norm1", WIDTH);
      add(layers, layer, "attention", 3 * WIDTH, WIDTH);
      add(layers, layer, "projection", WIDTH, WIDTH);
      add(layers, layer, "norm2", WIDTH);
      add(layers, layer, "up", 4 * WIDTH, WIDTH);
      add(layers, layer, "down", WIDTH, 4 * WIDTH);
    }
    add(layers, "output", "norm", WIDTH);
    add(layers, "output", "logits", VOCABULARY, WIDTH);
    return layers;
  }

  private static void add(
      Map<String, Map<String, long[]>> layers, String layer, String name, long... shape) {
    layers.computeIfAbsent(layer, any -> new LinkedHashMap<>()).put(name, shape);
  }

  private static void initialize(String name, Tensor tensor) {
    if (name.contains("norm")) {
      tensor.fill_(new Scalar(1.0));
    } else {
      tensor.normal_(0, 0.05, null);
    }
  }

  /**
   * Called by PyTorch for each gradient of a layer, before it is added to the memory. One average
   * for each layer is cheaper than one for each tensor.
   */
  private final class Hook extends VoidTensorHook {
    private final String layer;
    private int tensors;
    private int left;

    Hook(String layer) {
      this.layer = layer;
    }

    void count(Tensor tensor) {
      tensor.register_hook(this);
      left = ++tensors;
    }

    @Override
    public void call(TensorBase gradient) {
      reportPending(); // the gradient before this one is complete now
      if (--left == 0) {
        left = tensors;
        pending = layer;
      }
    }
  }

  private void reportPending() {
    if (pending != null) {
      ready.accept(pending);
      pending = null;
    }
  }

  /**
   * Computes the gradients of sequences; reports each layer whose gradients are complete.
   *
   * @param weight of their mean loss: 1 if each rank has as many sequences; no sequences have
   *     gradients of zero
   */
  void backward(int[] sequences, float weight, Consumer<String> onReady) {
    ready = onReady;
    gradients.all.zero_();
    if (sequences.length > 0) {
      loss(sequences).mul(new Scalar(weight)).backward();
      reportPending();
    }
  }

  /** Applies the gradients: stochastic gradient descent with momentum. */
  void update() {
    momenta.all.mul_(new Scalar(MOMENTUM)).add_(gradients.all);
    weights.all.add_(momenta.all, new Scalar(-RATE));
  }

  /** Returns the loss of sequences without gradients. */
  float evaluate(int[] sequences) {
    try (NoGradGuard guard = new NoGradGuard()) {
      return loss(sequences).item_float();
    }
  }

  private Tensor loss(int[] sequences) {
    Tensor tokens = tokens(sequences);
    Tensor inputs = tokens.narrow(1, 0, CONTEXT);
    Tensor x = torch.embedding(weight("input", "token"), inputs).add(weight("input", "position"));
    for (int block = 0; block < BLOCKS; block++) {
      String layer = "block" + block;
      x = x.add(attention(layer, norm(x, weight(layer, "norm1"))));
      Tensor wide = torch.gelu(torch.linear(norm(x, weight(layer, "norm2")), weight(layer, "up")));
      x = x.add(torch.linear(wide, weight(layer, "down")));
    }
    Tensor logits = torch.linear(norm(x, weight("output", "norm")), weight("output", "logits"));
    Tensor targets = tokens.narrow(1, 1, CONTEXT).reshape(-1);
    return torch.cross_entropy_loss(logits.reshape(-1, VOCABULARY), targets);
  }

  private Tensor attention(String layer, Tensor x) {
    Tensor all = torch.linear(x, weight(layer, "attention"));
    Tensor[] parts = new Tensor[3];
    for (int i = 0; i < parts.length; i++) {
      parts[i] =
          all.narrow(2, (long) i * WIDTH, WIDTH)
              .reshape(-1, CONTEXT, HEADS, WIDTH / HEADS)
              .transpose(1, 2);
    }
    Tensor mixed =
        torch.scaled_dot_product_attention(
            parts[0],
            parts[1],
            parts[2],
            new TensorOptional(),
            0,
            true,
            new DoubleOptional(),
            false);
    return torch.linear(
        mixed.transpose(1, 2).reshape(-1, CONTEXT, WIDTH), weight(layer, "projection"));
  }

  private static Tensor norm(Tensor x, Tensor weight) {
    return torch.layer_norm(
        x, new long[] {WIDTH}, new TensorOptional(weight), new TensorOptional(), 1e-5, false);
  }

  private Tensor weight(String layer, String name) {
    return tensors.get(layer + "." + name);
  }

  /** Returns sequences in which a token mostly decides the next one. */
  private static Tensor tokens(int[] sequences) {
    long[] tokens = new long[sequences.length * (CONTEXT + 1)];
    for (int i = 0; i < sequences.length; i++) {
      Random random = new Random(sequences[i] * 31L);
      int token = random.nextInt(VOCABULARY);
      for (int at = 0; at <= CONTEXT; at++) {
        tokens[i * (CONTEXT + 1) + at] = token;
        token = random.nextInt(10) == 0 ? random.nextInt(VOCABULARY) : (token * 5 + 3) % VOCABULARY;
      }
    }
    TensorOptions longs = new TensorOptions(torch.ScalarType.Long);
    return torch
        .from_blob(new LongPointer(tokens), new long[] {sequences.length, CONTEXT + 1}, longs)
        .clone();
  }
}
