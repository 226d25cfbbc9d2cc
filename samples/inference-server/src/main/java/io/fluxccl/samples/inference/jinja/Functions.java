// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.jinja;

import static java.util.Map.entry;

import io.fluxccl.samples.inference.jinja.Template.Function;
import io.fluxccl.samples.inference.jinja.Template.Namespace;
import io.fluxccl.samples.inference.jinja.Template.Undefined;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.BiPredicate;
import java.util.stream.Collectors;

/**
 * Jinja's functions, filters and tests, and the methods of Python's strings and maps. A function
 * removes the arguments that it reads; the caller refuses those that are left.
 */
final class Functions {
  static final Map<String, Function> GLOBALS =
      Map.of(
          "raise_exception",
          a -> {
            throw TemplateException.raised(Values.text(take(a, 0, "message")));
          },
          "namespace",
          a -> new Namespace(takeAll(a)),
          "dict",
          Functions::takeAll,
          "range",
          Functions::range);

  static final Map<String, BiFunction<Object, Map<String, Object>, Object>> FILTERS =
      Map.ofEntries(
          entry("trim", (v, a) -> strip(v, a, true, true)),
          entry("tojson", Functions::json),
          entry("length", (v, a) -> Values.size(v)),
          entry("count", (v, a) -> Values.size(v)),
          entry("list", (v, a) -> Values.items(v)),
          entry("first", (v, a) -> Values.item(Values.items(v), 0L)),
          entry("last", (v, a) -> Values.item(Values.items(v), -1L)),
          entry("reverse", (v, a) -> Values.slice(v, null, null, -1L)),
          entry("join", (v, a) -> join(Values.items(v), Values.text(take(a, 0, "d", "")))),
          entry("string", (v, a) -> Values.text(v)),
          entry("safe", (v, a) -> v),
          entry("int", (v, a) -> whole(v)),
          entry("upper", (v, a) -> Values.text(v).toUpperCase(Locale.ROOT)),
          entry("lower", (v, a) -> Values.text(v).toLowerCase(Locale.ROOT)),
          entry("title", (v, a) -> title(Values.text(v))),
          entry("capitalize", (v, a) -> capitalize(Values.text(v))),
          entry("replace", (v, a) -> replace(Values.text(v), a)),
          entry("default", Functions::otherwise),
          entry("items", (v, a) -> v instanceof Undefined ? List.of() : pairs(Values.map(v))),
          entry("map", Functions::map),
          entry("select", (v, a) -> select(v, null, a, true)),
          entry("reject", (v, a) -> select(v, null, a, false)),
          entry("selectattr", (v, a) -> select(v, take(a, 0, "attribute"), a, true)),
          entry("rejectattr", (v, a) -> select(v, take(a, 0, "attribute"), a, false)));

  static final Map<String, BiPredicate<Object, Map<String, Object>>> TESTS =
      Map.ofEntries(
          entry("defined", (v, a) -> !(v instanceof Undefined)),
          entry("undefined", (v, a) -> v instanceof Undefined),
          entry("none", (v, a) -> v == null),
          entry("string", (v, a) -> v instanceof String),
          entry("number", (v, a) -> Values.isNumber(v)),
          entry("integer", (v, a) -> v instanceof Long),
          entry("boolean", (v, a) -> v instanceof Boolean),
          entry("true", (v, a) -> Boolean.TRUE.equals(v)),
          entry("false", (v, a) -> Boolean.FALSE.equals(v)),
          entry("mapping", (v, a) -> v instanceof Map),
          entry("sequence", (v, a) -> isSequence(v)),
          entry("iterable", (v, a) -> isSequence(v)),
          entry("in", (v, a) -> Values.contains(take(a, 0, "seq"), v)),
          entry("equalto", (v, a) -> Values.equal(v, take(a, 0, "other"))),
          entry("eq", (v, a) -> Values.equal(v, take(a, 0, "other"))),
          entry("ne", (v, a) -> !Values.equal(v, take(a, 0, "other"))),
          entry("odd", (v, a) -> Values.number(v).longValue() % 2 != 0),
          entry("even", (v, a) -> Values.number(v).longValue() % 2 == 0));

  private static final Map<String, BiFunction<String, Map<String, Object>, Object>> STRINGS =
      Map.ofEntries(
          entry("strip", (v, a) -> strip(v, a, true, true)),
          entry("lstrip", (v, a) -> strip(v, a, true, false)),
          entry("rstrip", (v, a) -> strip(v, a, false, true)),
          entry("split", Functions::split),
          entry("startswith", (v, a) -> prefixes(a).anyMatch(v::startsWith)),
          entry("endswith", (v, a) -> prefixes(a).anyMatch(v::endsWith)),
          entry("upper", (v, a) -> v.toUpperCase(Locale.ROOT)),
          entry("lower", (v, a) -> v.toLowerCase(Locale.ROOT)),
          entry("title", (v, a) -> title(v)),
          entry("capitalize", (v, a) -> capitalize(v)),
          entry("replace", Functions::replace),
          entry("find", (v, a) -> position(v, v.indexOf(Values.text(take(a, 0, "sub"))))),
          entry("rfind", (v, a) -> position(v, v.lastIndexOf(Values.text(take(a, 0, "sub"))))),
          entry("join", (v, a) -> join(Values.items(take(a, 0, "iterable")), v)));

  private static final Map<String, BiFunction<Map<?, ?>, Map<String, Object>, Object>> MAPS =
      Map.of(
          "get",
          (v, a) -> {
            Object key = take(a, 0, "key");
            Object absent = take(a, 1, "default", null);
            return v.containsKey(key) ? v.get(key) : absent;
          },
          "items",
          (v, a) -> pairs(v),
          "keys",
          (v, a) -> Values.items(v),
          "values",
          (v, a) -> new ArrayList<>(v.values()));

  private Functions() {}

  static Object filter(String name, Object value, Map<String, Object> arguments) {
    return FILTERS.get(name).apply(value, arguments);
  }

  static boolean test(String name, Object value, Map<String, Object> arguments) {
    return TESTS.get(name).test(value, arguments);
  }

  /** Returns {@code value.name}: a method, or an item. */
  static Object member(Object value, Object name) {
    if (value instanceof String text && STRINGS.containsKey(name)) {
      return (Function) arguments -> STRINGS.get(name).apply(text, arguments);
    } else if (value instanceof Map<?, ?> map && MAPS.containsKey(name)) {
      return (Function) arguments -> MAPS.get(name).apply(map, arguments);
    }
    return Values.item(value, name);
  }

  /** Removes an argument, by its position or its name, and returns it. */
  static Object take(Map<String, Object> arguments, int index, String name, Object absent) {
    String key = arguments.containsKey("" + index) ? "" + index : name;
    return arguments.containsKey(key) ? arguments.remove(key) : absent;
  }

  private static Object take(Map<String, Object> arguments, int index, String name) {
    Object value = take(arguments, index, name, arguments);
    if (value == arguments) {
      throw new TemplateException("the argument " + name + " is missing");
    }
    return value;
  }

  private static Map<String, Object> takeAll(Map<String, Object> arguments) {
    Map<String, Object> all = new LinkedHashMap<>(arguments);
    arguments.clear();
    return all;
  }

  private static Object whole(Object value) {
    if (value instanceof String text) {
      return text.matches("[+-]?\\d{1,18}") ? Long.parseLong(text) : 0L;
    }
    return Values.number(value).longValue();
  }

  private static boolean isSequence(Object value) {
    return value instanceof List || value instanceof String || value instanceof Map;
  }

  private static Object range(Map<String, Object> a) {
    long first = Values.number(take(a, 0, "start")).longValue();
    Object stop = take(a, 1, "stop", null);
    long step = Values.number(take(a, 2, "step", 1L)).longValue();
    long from = stop == null ? 0 : first;
    long to = stop == null ? first : Values.number(stop).longValue();
    if (step == 0 || Math.abs(to - from) > 1 << 20) {
      throw new TemplateException("a range with a step of 0, or over a million");
    }
    List<Object> numbers = new ArrayList<>();
    for (long i = from; step > 0 ? i < to : i > to; i += step) {
      numbers.add(i);
    }
    return numbers;
  }

  private static String strip(Object value, Map<String, Object> a, boolean left, boolean right) {
    return Values.strip(Values.text(value), (String) take(a, 0, "chars", null), left, right);
  }

  private static Object json(Object value, Map<String, Object> a) {
    Object indent = take(a, 0, "indent", null);
    if (Values.isTrue(take(a, -1, "ensure_ascii", false))) {
      throw new TemplateException("the filter tojson does not support ensure_ascii=true");
    }
    return Values.json(value, indent == null ? null : " ".repeat(Values.number(indent).intValue()));
  }

  private static String join(List<Object> items, String mark) {
    return items.stream().map(Values::text).collect(Collectors.joining(mark));
  }

  private static String capitalize(String text) {
    int first = text.isEmpty() ? 0 : text.offsetByCodePoints(0, 1);
    return text.substring(0, first).toUpperCase(Locale.ROOT)
        + text.substring(first).toLowerCase(Locale.ROOT);
  }

  /** Begins each run of letters with a capital. */
  private static String title(String text) {
    StringBuilder out = new StringBuilder();
    boolean inside = false;
    for (char each : text.toCharArray()) {
      out.append(inside ? Character.toLowerCase(each) : Character.toUpperCase(each));
      inside = Character.isLetter(each);
    }
    return out.toString();
  }

  private static String replace(String text, Map<String, Object> a) {
    String old = Values.text(take(a, 0, "old"));
    return text.replace(old, Values.text(take(a, 1, "new")));
  }

  private static Object otherwise(Object value, Map<String, Object> a) {
    Object absent = take(a, 0, "default_value", "");
    boolean alsoFalse = Values.isTrue(take(a, 1, "boolean", false));
    return value instanceof Undefined || (alsoFalse && !Values.isTrue(value)) ? absent : value;
  }

  private static List<Object> pairs(Map<?, ?> map) {
    List<Object> pairs = new ArrayList<>();
    map.forEach((key, value) -> pairs.add(Arrays.asList(key, value)));
    return pairs;
  }

  private static Object map(Object value, Map<String, Object> a) {
    Object attribute = take(a, -1, "attribute");
    return Values.items(value).stream()
        .map(item -> Values.item(item, attribute))
        .collect(Collectors.toList());
  }

  /** Keeps the items that pass a test, or whose attribute does. */
  private static Object select(
      Object value, Object attribute, Map<String, Object> a, boolean wanted) {
    int index = attribute == null ? 0 : 1;
    Object test = take(a, index, "test", null);
    Object other = take(a, index + 1, "other", null);
    if (test != null && !TESTS.containsKey(test)) {
      throw new TemplateException("this server does not know the test '" + test + "'");
    }
    List<Object> kept = new ArrayList<>();
    for (Object item : Values.items(value)) {
      Object tested = attribute == null ? item : Values.item(item, attribute);
      Map<String, Object> argument = new LinkedHashMap<>();
      argument.put("0", other);
      boolean passes = test == null ? Values.isTrue(tested) : test((String) test, tested, argument);
      if (passes == wanted) {
        kept.add(item);
      }
    }
    return kept;
  }

  private static java.util.stream.Stream<String> prefixes(Map<String, Object> a) {
    Object parts = take(a, 0, "prefix");
    return (parts instanceof List<?> several ? several : List.of(parts)).stream().map(Values::text);
  }

  private static Object position(String text, int at) {
    return at < 0 ? -1L : (long) text.codePointCount(0, at);
  }

  private static Object split(String text, Map<String, Object> a) {
    Object mark = take(a, 0, "sep", null);
    int most = Values.number(take(a, 1, "maxsplit", -1L)).intValue();
    if (mark == null) {
      String words = Values.strip(text, null, true, true);
      return words.isEmpty() ? List.of() : List.of((Object[]) words.split("\\s+", most + 1));
    }
    String literal = java.util.regex.Pattern.quote(Values.text(mark));
    return List.of((Object[]) text.split(literal, most < 0 ? -1 : most + 1));
  }
}
