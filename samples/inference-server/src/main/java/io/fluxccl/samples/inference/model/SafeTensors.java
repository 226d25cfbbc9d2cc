// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import io.fluxccl.DataType;
import io.fluxccl.matmul.HostMatrix;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * The weights of a model's folder. {@code model.safetensors.index.json} names the file of each
 * tensor; without it, all {@code .safetensors} files count. A tensor is mapped when it is asked
 * for, so tensors that the model does not use may have any type and shape.
 */
public final class SafeTensors implements TensorSource {
  private static final String INDEX = "model.safetensors.index.json";
  private static final String LFS = "version https://git-lfs";
  private static final long MAX_HEADER = 100 << 20;

  /** A buffer that maps a file has at most 2 GiB. */
  private static final int MAPPED_BYTES = 1 << 30;

  private static final Map<String, DataType> TYPES =
      Map.of("BF16", DataType.BFLOAT16, "F16", DataType.FLOAT16, "F32", DataType.FLOAT32);

  private final Path folder;
  private final Map<String, Tensor> tensors;

  private SafeTensors(Path folder, Map<String, Tensor> tensors) {
    this.folder = folder;
    this.tensors = tensors;
  }

  /** A tensor's place in its file, in bytes. */
  private record Tensor(Path file, String type, long[] shape, long begin, long end) {
    @Override
    public String toString() {
      return type + " " + Arrays.toString(shape) + " in " + file;
    }
  }

  /**
   * Reads the headers of a folder's files.
   *
   * @throws IOException naming the file, and the tensor if it is one's fault, that is missing, cut
   *     or malformed
   */
  public static SafeTensors open(Path folder) throws IOException {
    Map<String, Tensor> all = new HashMap<>();
    Path index = folder.resolve(INDEX);
    if (Files.exists(index)) {
      Map<String, Map<String, Tensor>> files = new HashMap<>();
      for (Map.Entry<String, JsonNode> each : parse(index).path("weight_map").properties()) {
        String file = each.getValue().asText();
        if (!files.containsKey(file)) {
          files.put(file, header(folder.resolve(file)));
        }
        Tensor tensor = files.get(file).get(each.getKey());
        if (tensor == null) {
          throw new IOException(
              index + " has " + each.getKey() + " in " + file + ", which lacks it");
        }
        all.put(each.getKey(), tensor);
      }
    } else {
      for (Path file : files(folder)) {
        for (Map.Entry<String, Tensor> each : header(file).entrySet()) {
          Tensor other = all.put(each.getKey(), each.getValue());
          if (other != null) {
            throw new IOException(
                String.format(
                    Locale.ROOT,
                    "%s is in %s and in %s; remove one, or add %s",
                    each.getKey(),
                    other.file.getFileName(),
                    file.getFileName(),
                    INDEX));
          }
        }
      }
    }
    if (all.isEmpty()) {
      throw new IOException(folder + " has no weights: no tensor in a *.safetensors file");
    }
    return new SafeTensors(folder, all);
  }

  private static List<Path> files(Path folder) throws IOException {
    List<Path> found = new ArrayList<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.safetensors")) {
      files.forEach(found::add);
    }
    found.sort(Comparator.naturalOrder());
    return found;
  }

  private static JsonNode parse(Path file) throws IOException {
    try {
      return ConfigFile.JSON.readTree(file.toFile());
    } catch (JsonProcessingException e) {
      throw new IOException(file + " is no JSON: " + e.getOriginalMessage(), e);
    }
  }

  private static Map<String, Tensor> header(Path file) throws IOException {
    if (!Files.exists(file)) {
      throw new IOException(
          Files.isSymbolicLink(file)
              ? file + " links to " + Files.readSymbolicLink(file) + ", which is missing"
              : file + " is missing");
    }
    try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
      long size = channel.size();
      ByteBuffer length = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      channel.read(length, 0);
      long bytes = length.getLong(0);
      if (bytes < 2 || bytes > Math.min(MAX_HEADER, size - Long.BYTES)) {
        ByteBuffer start = ByteBuffer.allocate(LFS.length());
        channel.read(start, 0);
        boolean pointer = LFS.equals(new String(start.array(), StandardCharsets.US_ASCII));
        throw new IOException(
            pointer
                ? file + " is only a pointer of Git LFS; run: git lfs pull"
                : file + " is no safetensors file, or it is cut");
      }
      byte[] text = new byte[(int) bytes];
      channel.read(ByteBuffer.wrap(text), Long.BYTES);
      return tensors(file, text, Long.BYTES + bytes, size);
    }
  }

  private static Map<String, Tensor> tensors(Path file, byte[] header, long start, long size)
      throws IOException {
    Map<String, Tensor> found = new HashMap<>();
    TreeMap<Long, String> places = new TreeMap<>();
    JsonNode json;
    try {
      json = ConfigFile.JSON.readTree(header);
    } catch (JsonProcessingException e) {
      throw new IOException(file + ": its header is no JSON: " + e.getOriginalMessage(), e);
    }
    for (Map.Entry<String, JsonNode> entry : json.properties()) {
      String name = entry.getKey();
      if (!name.equals("__metadata__")) {
        Tensor tensor = tensor(file, entry.getValue(), start);
        if (tensor == null || tensor.begin < start || tensor.end < tensor.begin) {
          throw new IOException(file + ": the header's entry of " + name + " makes no sense");
        }
        if (tensor.end > size) {
          throw new IOException(
              String.format(
                  Locale.ROOT,
                  "%s is cut: %s ends at byte %d, the file at %d; download it again",
                  file,
                  name,
                  tensor.end,
                  size));
        }
        String other = tensor.end > tensor.begin ? places.put(tensor.begin, name) : null;
        if (other != null) {
          throw new IOException(file + ": " + name + " and " + other + " overlap");
        }
        found.put(name, tensor);
      }
    }
    long end = start;
    for (String name : places.values()) {
      if (found.get(name).begin < end) {
        throw new IOException(file + ": " + name + " overlaps the tensor before it");
      }
      end = found.get(name).end;
    }
    return found;
  }

  /** Returns the tensor of a header's entry, or null if the entry is malformed. */
  private static Tensor tensor(Path file, JsonNode info, long start) {
    JsonNode type = info.path("dtype");
    JsonNode shape = info.path("shape");
    JsonNode offsets = info.path("data_offsets");
    if (!type.isTextual() || !shape.isArray() || !offsets.isArray() || offsets.size() != 2) {
      return null;
    }
    long[] sizes = new long[shape.size()];
    for (int i = 0; i < sizes.length; i++) {
      sizes[i] = whole(shape.get(i));
    }
    boolean valid = Arrays.stream(sizes).allMatch(each -> each >= 0);
    long begin = whole(offsets.get(0));
    long end = whole(offsets.get(1));
    return valid && begin >= 0 && end >= 0 && end <= Long.MAX_VALUE - start
        ? new Tensor(file, type.asText(), sizes, start + begin, start + end)
        : null;
  }

  /** Returns a whole number, or -1 if it is none. */
  private static long whole(JsonNode node) {
    return node.isIntegralNumber() && node.canConvertToLong() ? node.longValue() : -1;
  }

  @Override
  public boolean has(String name) {
    return tensors.containsKey(name);
  }

  private Tensor find(String name, int rows, int cols) {
    Tensor tensor = tensors.get(name);
    long[] vector = {Math.max(rows, cols)};
    if (tensor == null
        || !(Arrays.equals(tensor.shape, new long[] {rows, cols})
            || (Math.min(rows, cols) == 1 && Arrays.equals(tensor.shape, vector)))) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "%s: the model needs the tensor %s of %d x %d, and has %s",
              folder,
              name,
              rows,
              cols,
              tensor == null ? "none of that name" : tensor));
    }
    DataType type = TYPES.get(tensor.type);
    if (type == null) {
      throw new IllegalArgumentException(
          name + " is " + tensor + "; this server reads only " + new TreeSet<>(TYPES.keySet()));
    }
    long bytes = tensor.end - tensor.begin;
    if (bytes != type.bytes((long) rows * cols)) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "%s is %s with %d bytes; %d are needed",
              name,
              tensor,
              bytes,
              type.bytes((long) rows * cols)));
    }
    return tensor;
  }

  @Override
  public HostMatrix[] rows(String name, int rows, int cols, int from, int count) {
    Tensor tensor = find(name, rows, cols);
    DataType type = TYPES.get(tensor.type);
    long rowBytes = type.bytes(cols);
    int atOnce = (int) Math.max(1, MAPPED_BYTES / rowBytes);
    List<HostMatrix> pieces = new ArrayList<>();
    try (FileChannel channel = FileChannel.open(tensor.file, StandardOpenOption.READ)) {
      for (int row = from; row < from + count; row += atOnce) {
        int piece = Math.min(atOnce, from + count - row);
        long place = tensor.begin + row * rowBytes;
        ByteBuffer data = channel.map(FileChannel.MapMode.READ_ONLY, place, piece * rowBytes);
        pieces.add(HostMatrix.of(data, type, piece, cols));
      }
    } catch (IOException e) {
      throw new UncheckedIOException(tensor.file + " can't be read", e);
    }
    return pieces.toArray(HostMatrix[]::new);
  }
}
