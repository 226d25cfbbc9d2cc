// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.matmul.HostMatrix;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SafeTensorsTest {
  private static final String A = "'a': {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [0, 24]}";

  @TempDir private Path folder;

  /** Writes a file with a header, given with single quotes, and numbers 0, 1, 2, ... */
  private void write(String file, String header, int bytes) throws IOException {
    byte[] text = header.replace('\'', '"').getBytes(StandardCharsets.UTF_8);
    ByteBuffer data =
        ByteBuffer.allocate(Long.BYTES + text.length + bytes).order(ByteOrder.LITTLE_ENDIAN);
    data.putLong(text.length).put(text);
    for (int i = 0; i + 4 <= bytes; i += 4) {
      data.putFloat(i / 4f);
    }
    Files.write(folder.resolve(file), data.array());
  }

  private static float at(HostMatrix matrix, int index) {
    return matrix.data().getFloat(index * Float.BYTES);
  }

  @Test
  void shouldSkipUnusedTensors() throws IOException {
    write(
        "model.safetensors",
        "{'__metadata__': {'format': 'pt'}, "
            + A
            + ", 'mask': {'dtype': 'I64', 'shape': [1, 1, 1], 'data_offsets': [24, 32]}"
            + ", 'scalar': {'dtype': 'F16', 'shape': [], 'data_offsets': [32, 34]}"
            + ", 'empty': {'dtype': 'BOOL', 'shape': [0], 'data_offsets': [34, 34]}}",
        34);
    SafeTensors tensors = SafeTensors.open(folder);
    assertThat(at(tensors.get("a", 2, 3)[0], 4)).isEqualTo(4);
    assertThatThrownBy(() -> tensors.get("scalar", 1, 1)).hasMessageContaining("scalar of 1 x 1");
  }

  @Test
  void shouldTakeATensorFromTheFileThatTheIndexNames() throws IOException {
    write("model.safetensors", "{" + A + "}", 24);
    write("aaa.safetensors", "{" + A + "}", 24);
    assertThatThrownBy(() -> SafeTensors.open(folder))
        .hasMessageContaining("a is in aaa.safetensors and in model.safetensors");
    Path index = folder.resolve("model.safetensors.index.json");
    Files.writeString(index, "{\"weight_map\": {\"a\": \"model.safetensors\"}}");
    SafeTensors.open(folder).get("a", 2, 3);
    Files.writeString(index, "{\"weight_map\": {\"b\": \"model.safetensors\"}}");
    assertThatThrownBy(() -> SafeTensors.open(folder)).hasMessageContaining("which lacks it");
    Files.writeString(index, "{\"weight_map\": {\"a\": \"model-2.safetensors\"}}");
    assertThatThrownBy(() -> SafeTensors.open(folder))
        .hasMessageContaining("model-2.safetensors is missing");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '^',
      value = {
        "{'a': {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [0, 28]}} | ends at byte",
        "{'a': {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [8, 0]}} | entry of a makes no sense",
        "{'a': {'dtype': 'F32', 'shape': [2, -3], 'data_offsets': [0, 24]}} | entry of a makes no sense",
        "{'a': {'dtype': 'F32', 'shape': [2, 3]}} | entry of a makes no sense",
        "{'a': {'dtype': 'F32', 'shape': ['2', 3], 'data_offsets': [0, 24]}} | entry of a makes no sense",
        "{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]},"
            + " 'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 8]}} | header is no JSON",
        "{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 8]},"
            + " 'b': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 8]}} | overlaps",
        "{'a': | its header is no JSON",
        "{} | has no weights"
      })
  void shouldRefuseAMalformedHeader(String header, String message) throws IOException {
    write("model.safetensors", header, 24);
    assertThatThrownBy(() -> SafeTensors.open(folder))
        .isInstanceOf(IOException.class)
        .hasMessageContaining(folder.toString())
        .hasMessageContaining(message);
  }

  @Test
  void shouldNameAFileThatIsNone() throws IOException {
    Path file = folder.resolve("model.safetensors");
    Files.writeString(file, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    assertThatThrownBy(() -> SafeTensors.open(folder)).hasMessageContaining("git lfs pull");
    Files.write(file, new byte[3]);
    assertThatThrownBy(() -> SafeTensors.open(folder)).hasMessageContaining("no safetensors file");
    Files.delete(file);
    Files.createSymbolicLink(file, folder.resolve("blobs"));
    assertThatThrownBy(() -> SafeTensors.open(folder))
        .hasMessageContaining("blobs, which is missing");
  }

  @Test
  void shouldMapATensorOfMoreThan2GiBInPieces() throws IOException {
    int rows = 1 << 14;
    int cols = (1 << 15) + 64;
    long end = 4L * rows * cols;
    String header =
        "{'a': {'dtype': 'F32', 'shape': [%d, %d], 'data_offsets': [0, %d]}}"
            .formatted(rows, cols, end);
    write("model.safetensors", header, 0);
    try (FileChannel file =
        FileChannel.open(folder.resolve("model.safetensors"), StandardOpenOption.WRITE)) {
      ByteBuffer seven = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putFloat(0, 7);
      file.write(seven, file.size() + end - 4); // the rest of it takes no space
    }
    SafeTensors tensors = SafeTensors.open(folder);
    HostMatrix[] pieces = tensors.get("a", rows, cols);
    assertThat(pieces).hasSize(3);
    HostMatrix last = pieces[2];
    assertThat(last.get(last.rows() - 1, cols - 1)).isEqualTo(7);
    assertThat(Stream.of(pieces).mapToInt(HostMatrix::rows).sum()).isEqualTo(rows);
    HostMatrix[] part = tensors.rows("a", rows, cols, rows - 2, 2);
    assertThat(part).hasSize(1);
    assertThat(part[0].get(1, cols - 1)).isEqualTo(7);
    assertThat(part[0].get(0, cols - 1)).isZero();
  }

  @Test
  void shouldReadHalfFloats() throws IOException {
    write("model.safetensors", "{'a': {'dtype': 'F16', 'shape': [2], 'data_offsets': [0, 4]}}", 0);
    Files.write(
        folder.resolve("model.safetensors"),
        new byte[] {0, 0x3c, 0, (byte) 0xc1},
        StandardOpenOption.APPEND);
    for (HostMatrix vector :
        new HostMatrix[] {
          SafeTensors.open(folder).get("a", 1, 2)[0],
          SafeTensors.open(folder).get("a", 2, 1)[0].cols(0, 1)
        }) {
      assertThat(vector.get(0, 0)).isEqualTo(1);
      assertThat(vector.get(vector.rows() - 1, vector.cols() - 1)).isEqualTo(-2.5f);
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '^',
      value = {
        "'b': {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [0, 24]} | none of that name",
        "'a': {'dtype': 'F32', 'shape': [3, 2], 'data_offsets': [0, 24]} | F32 [3, 2] in",
        "'a': {'dtype': 'I32', 'shape': [2, 3], 'data_offsets': [0, 24]} | reads only",
        "'a': {'dtype': 'BF16', 'shape': [2, 3], 'data_offsets': [0, 24]} | 12 are needed"
      })
  void shouldNameTheTensorThatTheModelCannotUse(String tensor, String message) throws IOException {
    write("model.safetensors", "{" + tensor + "}", 24);
    SafeTensors tensors = SafeTensors.open(folder);
    assertThatThrownBy(() -> tensors.get("a", 2, 3))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("a ")
        .hasMessageContaining(message);
  }
}
