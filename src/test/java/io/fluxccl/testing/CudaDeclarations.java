// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * The constants, enums and structs that a CUDA source and its headers declare outside of functions.
 * Reads the text: no compiler is needed.
 */
public final class CudaDeclarations {
  private static final Path SOURCES = Path.of("src/main/cuda");
  private static final Pattern INCLUDE = Pattern.compile("#include [<\"]([\\w/.]+)[>\"]");
  private static final Pattern COMMENT = Pattern.compile("//[^\n]*|/\\*.*?\\*/", Pattern.DOTALL);
  private static final Pattern DIRECTIVE = Pattern.compile("(?m)^\\s*#(.*\\\\\n)*.*$");
  private static final Pattern STRUCT =
      Pattern.compile(
          "(?:template <.*> )?(?:struct|class) (?:alignas\\((\\d+)\\) )?(\\w+)"
              + "(?: : (?:public )?(\\w+))?");
  private static final Pattern ENUM = Pattern.compile("enum (?:class )?(\\w+)(?: : \\w+)?");
  private static final Pattern CONSTANT =
      Pattern.compile("(?:static )?constexpr [\\w:]+ (k\\w+) = (.+)");
  private static final Pattern ALIAS = Pattern.compile("using (\\w+) = (\\w+)");
  private static final Pattern FIELD =
      Pattern.compile("(?:const )?([\\w:]+(?: long)?)( ?\\* ?| )(\\w+)(?:\\[(.+)])?(?: = .*)?");
  private static final Map<String, Integer> SCALARS =
      Map.of(
          "uint8_t",
          1,
          "int32_t",
          4,
          "uint32_t",
          4,
          "int",
          4,
          "float",
          4,
          "int64_t",
          8,
          "uint64_t",
          8,
          "long long",
          8);

  /** A struct: its base or null, its declared alignment, and its fields in their order. */
  private record Struct(String base, int alignment, List<Field> fields) {}

  private record Field(String type, String name, String count) {}

  private record Layout(long size, long alignment, Map<String, Long> offsets) {}

  private final Map<String, String> constants = new HashMap<>();
  private final Map<String, List<String>> enums = new HashMap<>();
  private final Map<String, Struct> structs = new HashMap<>();
  private final Map<String, String> aliases = new HashMap<>();
  private final Set<Path> read = new HashSet<>();

  private String text;
  private int at;

  private CudaDeclarations() {}

  /** Reads a source below src/main/cuda, and the headers that it includes. */
  public static CudaDeclarations of(String source) {
    CudaDeclarations declarations = new CudaDeclarations();
    declarations.read(SOURCES.resolve(source));
    return declarations;
  }

  /** Returns the names of an enum, in their order. */
  public List<String> names(String type) {
    assertThat(enums).containsKey(type);
    return enums.get(type);
  }

  /** Returns the fields of a struct, in their order. */
  public List<String> fields(String type) {
    assertThat(structs).containsKey(type);
    return structs.get(type).fields.stream().map(Field::name).toList();
  }

  /**
   * Returns the bytes of a struct's field.
   *
   * @param field its name; that of a field of a field is {@code outer.inner}
   */
  public long sizeOf(String type, String field) {
    int end = field.indexOf('.');
    Field found =
        structs.get(type).fields.stream()
            .filter(each -> each.name.equals(end < 0 ? field : field.substring(0, end)))
            .findFirst()
            .orElseThrow();
    return end < 0
        ? sizeOf(found, type)
        : sizeOf(resolve(structs, found.type, type), field.substring(end + 1));
  }

  /** Returns the value of an expression of constants, sizeof and offsetof. */
  public long value(String expression) {
    return new Expression(expression, "").value();
  }

  private void read(Path file) {
    if (!read.add(file)) {
      return;
    }
    String source;
    try {
      source = Files.readString(file);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    Matcher included = INCLUDE.matcher(source);
    while (included.find()) {
      Stream.of(file.getParent(), SOURCES, SOURCES.resolve("include"))
          .map(folder -> folder.resolve(included.group(1)))
          .filter(Files::exists)
          .findFirst()
          .ifPresent(this::read);
    }
    text = DIRECTIVE.matcher(COMMENT.matcher(source).replaceAll("")).replaceAll("");
    at = 0;
    readScope("");
  }

  /** Reads declarations up to the end of the scope, whose begin has been read. */
  private void readScope(String scope) {
    StringBuilder statement = new StringBuilder();
    while (at < text.length()) {
      char next = text.charAt(at++);
      if (next == '}') {
        return;
      } else if (next == ';') {
        declare(scope, clean(statement));
        statement.setLength(0);
      } else if (next == '{') {
        open(scope, clean(statement), statement);
      } else {
        statement.append(next);
      }
    }
  }

  private static String clean(CharSequence statement) {
    return statement
        .toString()
        .strip()
        .replaceAll("\\s+", " ")
        .replaceAll("^((public|private|protected):\\s*)+", "");
  }

  /** Reads what a brace begins; leaves the part of the statement that its end continues. */
  private void open(String scope, String before, StringBuilder statement) {
    Matcher struct = STRUCT.matcher(before);
    Matcher enumeration = ENUM.matcher(before);
    if (before.matches("(inline )?namespace( \\w+)?|extern \"C\"")) {
      statement.setLength(0);
      readScope(scope);
    } else if (struct.matches()) {
      statement.setLength(0);
      String name = scope + struct.group(2);
      int alignment = struct.group(1) == null ? 1 : Integer.parseInt(struct.group(1));
      structs.putIfAbsent(name, new Struct(struct.group(3), alignment, new ArrayList<>()));
      readScope(name + "::");
      // A field of the type may follow.
      statement.append(struct.group(2)).append(' ');
    } else if (enumeration.matches()) {
      statement.setLength(0);
      enums.put(scope + enumeration.group(1), List.of(clean(skipped()).split(",? *(, |$)|,$")));
    } else if (before.contains("constexpr") && before.contains(" = ") || !before.contains("(")) {
      statement.append('{').append(skipped()).append('}');
    } else {
      skipped();
      statement.setLength(0);
    }
  }

  /** Skips to the end of a block and returns its content. */
  private String skipped() {
    int start = at;
    for (int depth = 1; depth > 0; at++) {
      depth += text.charAt(at) == '{' ? 1 : text.charAt(at) == '}' ? -1 : 0;
    }
    return text.substring(start, at - 1);
  }

  private void declare(String scope, String statement) {
    Matcher constant = CONSTANT.matcher(statement);
    Matcher field = FIELD.matcher(statement);
    Matcher alias = ALIAS.matcher(statement);
    if (constant.matches()) {
      constants.put(scope + constant.group(1), constant.group(2));
    } else if (alias.matches()) {
      aliases.put(scope + alias.group(1), alias.group(2));
    } else if (!scope.isEmpty()
        && !statement.contains("(")
        && !statement.matches("(static|using|friend|template|struct|class|return) .*")
        && field.matches()) {
      boolean pointer = field.group(2).contains("*");
      structs
          .get(scope.substring(0, scope.length() - 2))
          .fields
          .add(new Field(pointer ? "uint64_t" : field.group(1), field.group(3), field.group(4)));
    }
  }

  private long sizeOf(Field field, String scope) {
    long count = field.count == null ? 1 : new Expression(field.count, scope).value();
    return count * layout(field.type, scope).size;
  }

  private Layout layout(String type, String scope) {
    if (SCALARS.containsKey(type) || resolve(enums, type, scope) != null) {
      long size = SCALARS.getOrDefault(type, Integer.BYTES);
      return new Layout(size, size, Map.of());
    }
    String alias = resolve(aliases, type, scope);
    if (alias != null) {
      return layout(aliases.get(alias), scope);
    }
    String name = resolve(structs, type, scope);
    assertThat(name).as("the type " + type + " in " + scope).isNotNull();
    Struct struct = structs.get(name);
    Layout base = struct.base == null ? new Layout(0, 1, Map.of()) : layout(struct.base, name);
    long end = base.size;
    long alignment = Math.max(struct.alignment, base.alignment);
    Map<String, Long> offsets = new HashMap<>(base.offsets);
    for (Field field : struct.fields) {
      long needed = layout(field.type, name).alignment;
      alignment = Math.max(alignment, needed);
      offsets.put(field.name, align(end, needed));
      end = align(end, needed) + sizeOf(field, name);
    }
    return new Layout(align(end, alignment), alignment, offsets);
  }

  private static long align(long offset, long alignment) {
    return (offset + alignment - 1) / alignment * alignment;
  }

  /** Returns the full name of what a name means in a scope, or null. */
  private static String resolve(Map<String, ?> declared, String name, String scope) {
    for (String from = scope; ; from = from.substring(0, Math.max(0, from.lastIndexOf("::")))) {
      String full = from.isEmpty() ? name : from + "::" + name;
      if (declared.containsKey(full)) {
        return full;
      } else if (from.isEmpty()) {
        return null;
      }
    }
  }

  /** Evaluates an integer expression. */
  private final class Expression {
    private static final List<List<String>> OPERATORS =
        List.of(List.of("<<", ">>"), List.of("+", "-"), List.of("*", "/", "%"));

    private final Deque<String> tokens = new ArrayDeque<>();
    private final String scope;

    Expression(String text, String scope) {
      this.scope = scope;
      Matcher token =
          Pattern.compile("[A-Za-z_][\\w:]*|\\d\\w*|<<|>>|\\S")
              .matcher(text.replaceAll("uint64_t\\{(\\w+)}", "$1"));
      while (token.find()) {
        tokens.add(token.group());
      }
    }

    long value() {
      long value = binary(0);
      assertThat(tokens).isEmpty();
      return value;
    }

    private long binary(int level) {
      if (level == OPERATORS.size()) {
        return unary();
      }
      long value = binary(level + 1);
      while (!tokens.isEmpty() && OPERATORS.get(level).contains(tokens.peek())) {
        String operator = tokens.remove();
        long right = binary(level + 1);
        value =
            switch (operator) {
              case "<<" -> value << right;
              case ">>" -> value >> right;
              case "+" -> value + right;
              case "-" -> value - right;
              case "*" -> value * right;
              case "/" -> value / right;
              default -> value % right;
            };
      }
      return value;
    }

    private long unary() {
      String token = tokens.remove();
      return switch (token) {
        case "-" -> -unary();
        case "~" -> ~unary();
        case "(" -> closed(binary(0));
        case "sizeof" -> {
          tokens.remove();
          yield closed(layout(tokens.remove(), scope).size);
        }
        case "offsetof" -> {
          tokens.remove();
          Layout type = layout(tokens.remove(), scope);
          tokens.remove();
          yield closed(type.offsets.get(tokens.remove()));
        }
        default -> Character.isDigit(token.charAt(0)) ? number(token) : constant(token);
      };
    }

    private long closed(long value) {
      assertThat(tokens.remove()).isEqualTo(")");
      return value;
    }

    private static long number(String token) {
      String digits = token.replaceAll("[uUlL]+$", "");
      return digits.startsWith("0x")
          ? Long.parseUnsignedLong(digits.substring(2), 16)
          : Long.parseLong(digits);
    }

    private long constant(String name) {
      String full = resolve(constants, name, scope);
      assertThat(full).as("the constant " + name + " in " + scope).isNotNull();
      int end = full.lastIndexOf("::");
      return new Expression(constants.get(full), end < 0 ? "" : full.substring(0, end)).value();
    }
  }
}
