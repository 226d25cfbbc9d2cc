// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fluxccl.DataType;
import io.fluxccl.matmul.HostMatrix;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** The weights of a model's folder: all its {@code .safetensors} files, mapped. */
public final class SafeTensors implements TensorSource {
  private static final long MAX_HEADER = 100 << 20;
  private static final Map<String, DataType> TYPES =
      Map.of("BF16", DataType.BFLOAT16, "F32", DataType.FLOAT32);

  private final Path folder;
  private final Map<String, HostMatrix> tensors = new HashMap<>();

  private SafeTensors(Path folder) {
    this.folder = folder;
  }

  /** Maps the files of a folder. */
  public static SafeTensors open(Path folder) throws IOException {
    SafeTensors all = new SafeTensors(folder);
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.safetensors")) {
      for (Path file : files) {
        all.map(file);
      }
    }
    return all;
  }

  private void map(Path file) throws IOException {
    try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
      ByteBuffer length = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      channel.read(length, 0);
      long header = length.getLong(0);
      if (header < 2 || header > Math.min(MAX_HEADER, channel.size() - Long.BYTES)) {
        throw new IOException(file + ": a header of " + header + " bytes; no safetensors file");
      }
      byte[] text = new byte[(int) header];
      channel.read(ByteBuffer.wrap(text), Long.BYTES);
      for (Map.Entry<String, JsonNode> entry : new ObjectMapper().readTree(text).properties()) {
        if (!entry.getKey().equals("__metadata__")) {
          JsonNode info = entry.getValue();
          tensors.put(entry.getKey(), map(channel, Long.BYTES + header, info, entry.getKey()));
        }
      }
    }
  }

  private HostMatrix map(FileChannel channel, long start, JsonNode info, String name)
      throws IOException {
    String type = info.get("dtype").asText();
    JsonNode shape = info.get("shape");
    long from = info.get("data_offsets").get(0).asLong();
    long bytes = info.get("data_offsets").get(1).asLong() - from;
    int rows = shape.size() == 2 ? shape.get(0).asInt() : 1;
    int cols = shape.get(shape.size() - 1).asInt();
    DataType elements = TYPES.get(type);
    if (shape.size() > 2 || elements == null) {
      throw new IOException(name + ": dtype=" + type + ", shape=" + shape + "; not supported");
    }
    if (bytes != elements.bytes((long) rows * cols) || start + from + bytes > channel.size()) {
      throw new IOException(name + ": " + bytes + " bytes do not fit shape=" + shape);
    }
    ByteBuffer data = channel.map(FileChannel.MapMode.READ_ONLY, start + from, bytes);
    return HostMatrix.of(data, elements, rows, cols);
  }

  @Override
  public HostMatrix get(String name, int rows, int cols) {
    HostMatrix tensor = tensors.get(name);
    if (tensor == null || tensor.rows() != rows || tensor.cols() != cols) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "%s: tensor %s of %d x %d expected, found %s",
              folder,
              name,
              rows,
              cols,
              tensor == null ? "none" : tensor));
    }
    return tensor;
  }
}
