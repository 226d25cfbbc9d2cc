// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.CudaDeclarations;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Constants, enums and layouts that kernels and Java both define: equal, or a test fails. */
class TwinsTest {
  private static final Path PAIRS = Path.of("src/test/resources/io/fluxccl/twins.txt");
  private static final Path FIELDS = Path.of("src/test/resources/io/fluxccl/twin-fields.txt");

  /** A call that writes a field, with its argument; parentheses nest three deep. */
  private static final Pattern PUT =
      Pattern.compile(
          "\\bput(Int|Long|Address|Divisor|)"
              + "\\(((?:[^()]|\\((?:[^()]|\\((?:[^()]|\\([^()]*\\))*\\))*\\))*)\\)");

  private static final Pattern JAVA_CONSTANT =
      Pattern.compile("((?:[a-z]\\w*\\.)*[A-Z]\\w*(?:\\$\\w+)?)\\.(.+)");
  private static final Map<String, CudaDeclarations> SOURCES = new ConcurrentHashMap<>();

  private static CudaDeclarations source(String name) {
    return SOURCES.computeIfAbsent(name, CudaDeclarations::of);
  }

  /** Returns the value of a static field, or of a field of an object that is one. */
  private static long constant(String name) throws ReflectiveOperationException {
    Matcher parts = JAVA_CONSTANT.matcher(name);
    assertThat(parts.matches()).as(name).isTrue();
    Object value = null;
    Class<?> type = Class.forName("io.fluxccl." + parts.group(1));
    for (String part : parts.group(2).split("\\.")) {
      Field field = type.getDeclaredField(part);
      field.setAccessible(true);
      value = field.get(value);
    }
    return ((Number) value).longValue();
  }

  static List<Arguments> pairs() throws IOException {
    List<Arguments> pairs = new ArrayList<>();
    String source = null;
    for (String line : Files.readAllLines(PAIRS)) {
      if (line.startsWith("[")) {
        source = line.substring(1, line.length() - 1);
      } else if (!line.startsWith("#")) {
        String[] halves = line.split(" = ");
        pairs.add(Arguments.of(source, halves[0], halves[1]));
      }
    }
    return pairs;
  }

  @ParameterizedTest
  @MethodSource("pairs")
  void shouldDefineEqualConstantsInJavaAndCuda(String cuda, String expression, String java)
      throws ReflectiveOperationException {
    assertThat(constant(java)).isEqualTo(source(cuda).value(expression));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          collectives/accumulator.cuh | ReduceOp | ReduceOp
          collectives/routing.cuh | Fault | collective.cuda.Routes$Fault
          include/fluxccl/packet.cuh | PacketType | channel.PacketType
          """)
  void shouldDefineEqualEnumsInJavaAndCuda(String cuda, String type, String java)
      throws ReflectiveOperationException {
    assertThat(names(java)).isEqualTo(source(cuda).names(type));
  }

  /** Kernels of hierarchies know the first types only. */
  @ParameterizedTest
  @CsvSource("collectives/pipe_hierarchical.cuh, DataType")
  void shouldNumberTypesAlikeInJavaAndCuda(String cuda, String type)
      throws ReflectiveOperationException {
    List<String> known = source(cuda).names(type);
    assertThat(names(type)).startsWith(known.toArray(String[]::new));
  }

  /** A struct of CUDA, and the code of Java that writes it. */
  private record Written(String cuda, String struct, String java, List<String> begins) {
    static Written of(String line) {
      String[] parts = line.substring(1, line.length() - 1).split(" \\| ");
      return new Written(parts[0], parts[1], parts[2], List.of(parts).subList(3, parts.length));
    }

    /** Returns the calls that write a field, in their order. */
    List<MatchResult> puts() throws IOException {
      String source = Files.readString(Path.of("src/main/java/io/fluxccl", java));
      List<MatchResult> puts = new ArrayList<>();
      for (String begin : begins) {
        int from = source.indexOf(begin);
        assertThat(from).as(begin + " in " + java).isNotNegative();
        String code = source.substring(from, source.indexOf("\n  }\n", from));
        PUT.matcher(code.replaceAll("\\s+", " ")).results().forEach(puts::add);
      }
      return puts;
    }
  }

  static Map<String, List<String[]>> structs() throws IOException {
    Map<String, List<String[]>> structs = new LinkedHashMap<>();
    String struct = null;
    for (String line : Files.readString(FIELDS).replace(" |\n", " | ").split("\n")) {
      if (line.startsWith("[")) {
        struct = line;
        structs.put(struct, new ArrayList<>());
      } else if (!line.startsWith("#")) {
        structs.get(struct).add(line.split(" = ", 2));
      }
    }
    return structs;
  }

  static Set<String> writtenStructs() throws IOException {
    return structs().keySet();
  }

  @ParameterizedTest
  @MethodSource("writtenStructs")
  void shouldWriteFieldsInTheOrderOfTheStruct(String section) throws IOException {
    Written written = Written.of(section);
    CudaDeclarations cuda = source(written.cuda);
    List<String[]> pairs = structs().get(section);
    assertThat(fields(pairs, 0).map(name -> name.replaceAll("\\..*", "")).distinct())
        .as(
            "fields of %s in %s; change %s too, then %s",
            written.struct, written.cuda, written.java, FIELDS)
        .isEqualTo(cuda.fields(written.struct));
    List<MatchResult> puts = written.puts();
    assertThat(puts.stream().map(put -> put.group(2)))
        .as(
            "what %s writes; change %s in %s too, then %s",
            written.java, written.struct, written.cuda, FIELDS)
        .isEqualTo(fields(pairs, 1).toList());
    Iterator<MatchResult> next = puts.iterator();
    for (String[] pair : pairs) {
      String kind = pair[1].equals("-") ? "" : next.next().group(1);
      if (!pair[0].equals("-") && !kind.isEmpty()) {
        assertThat(cuda.sizeOf(written.struct, pair[0]))
            .as(pair[0])
            .isEqualTo(kind.equals("Int") ? Integer.BYTES : Long.BYTES);
      }
    }
  }

  private static Stream<String> fields(List<String[]> pairs, int half) {
    return pairs.stream().map(pair -> pair[half]).filter(name -> !name.equals("-"));
  }

  private static List<String> names(String type) throws ReflectiveOperationException {
    return Arrays.stream(Class.forName("io.fluxccl." + type).getEnumConstants())
        .map(each -> ((Enum<?>) each).name())
        .toList();
  }
}
