// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.jinja;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fluxccl.samples.inference.jinja.Template.Namespace;
import io.fluxccl.samples.inference.jinja.Template.Undefined;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Python's rules for values: their truth and text, and the results of operators. */
final class Values {
  private static final ObjectMapper JSON = new ObjectMapper();

  private Values() {}

  /** Returns the exception for a value that is not what a part of a template needs. */
  static TemplateException wrong(Object value, String need) {
    return new TemplateException(
        value instanceof Undefined undefined
            ? undefined.what() + " is undefined"
            : repr(value) + " is not " + need);
  }

  static boolean isTrue(Object value) {
    if (isNumber(value)) {
      return number(value).doubleValue() != 0;
    } else if (value instanceof String || value instanceof List || value instanceof Map) {
      return !value.equals("") && !value.equals(List.of()) && !value.equals(Map.of());
    }
    return value != null && !(value instanceof Undefined);
  }

  /** Returns Python's {@code str} of a value. */
  static String text(Object value) {
    return value instanceof String text ? text : value instanceof Undefined ? "" : repr(value);
  }

  private static String repr(Object value) {
    if (value instanceof String text) {
      String quote = text.contains("'") && !text.contains("\"") ? "\"" : "'";
      String escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r");
      return quote + escaped.replace("\t", "\\t").replace(quote, "\\" + quote) + quote;
    } else if (value instanceof List<?> list) {
      return list.stream().map(Values::repr).collect(Collectors.joining(", ", "[", "]"));
    } else if (value instanceof Map<?, ?> map) {
      return map.entrySet().stream()
          .map(each -> repr(each.getKey()) + ": " + repr(each.getValue()))
          .collect(Collectors.joining(", ", "{", "}"));
    } else if (value instanceof Boolean truth) {
      return truth ? "True" : "False";
    }
    return value == null ? "None" : value.toString();
  }

  static boolean isSpace(int character) {
    return Character.isWhitespace(character)
        || Character.isSpaceChar(character)
        || character == 0x85;
  }

  /** Removes characters at the ends; blanks if they are null. */
  static String strip(String text, String characters, boolean left, boolean right) {
    int from = 0;
    int to = text.length();
    while (left && from < to && strips(text.charAt(from), characters)) {
      from++;
    }
    while (right && to > from && strips(text.charAt(to - 1), characters)) {
      to--;
    }
    return text.substring(from, to);
  }

  private static boolean strips(char character, String characters) {
    return characters == null ? isSpace(character) : characters.indexOf(character) >= 0;
  }

  /** Returns the items of a list, the keys of a map, or the characters of a string. */
  static List<Object> items(Object value) {
    if (value instanceof String text) {
      return text.codePoints().mapToObj(Character::toString).collect(Collectors.toList());
    } else if (value instanceof Map<?, ?> map) {
      return new ArrayList<>(map.keySet());
    } else if (value instanceof List<?> list) {
      return new ArrayList<>(list);
    } else if (value instanceof Undefined) {
      return List.of();
    }
    throw wrong(value, "a list, a map or a string");
  }

  static long size(Object value) {
    return value instanceof List<?> list ? list.size() : items(value).size();
  }

  static Map<?, ?> map(Object value) {
    if (value instanceof Map<?, ?> map) {
      return map;
    }
    throw wrong(value, "a map");
  }

  /** Returns a number as a Long or a Double; a boolean is 0 or 1. */
  static Number number(Object value) {
    if (value instanceof Number number) {
      return number;
    } else if (value instanceof Boolean truth) {
      return truth ? 1L : 0L;
    }
    throw wrong(value, "a number");
  }

  static boolean isNumber(Object value) {
    return value instanceof Number || value instanceof Boolean;
  }

  static boolean equal(Object a, Object b) {
    return isNumber(a) && isNumber(b)
        ? number(a).doubleValue() == number(b).doubleValue()
        : a == null ? b == null : a.equals(b);
  }

  private static int compare(Object a, Object b) {
    return a instanceof String first && b instanceof String second
        ? first.compareTo(second)
        : Double.compare(number(a).doubleValue(), number(b).doubleValue());
  }

  static boolean contains(Object whole, Object part) {
    return whole instanceof String text && part instanceof String piece
        ? text.contains(piece)
        : items(whole).stream().anyMatch(item -> equal(item, part));
  }

  /** Returns the result of a binary operator other than {@code and} and {@code or}. */
  static Object operate(String operator, Object a, Object b) {
    switch (operator) {
      case "==":
        return equal(a, b);
      case "!=":
        return !equal(a, b);
      case "in":
        return contains(b, a);
      case "not in":
        return !contains(b, a);
      case "<":
        return compare(a, b) < 0;
      case "<=":
        return compare(a, b) <= 0;
      case ">":
        return compare(a, b) > 0;
      case ">=":
        return compare(a, b) >= 0;
      case "~":
        return text(a) + text(b);
      case "+":
        if (a instanceof String text) {
          return text + string(b);
        } else if (a instanceof List && b instanceof List) {
          List<Object> both = items(a);
          both.addAll(items(b));
          return both;
        }
        return arithmetic(operator, number(a), number(b));
      default:
        return a instanceof String text && operator.equals("*")
            ? text.repeat(Math.max(0, number(b).intValue()))
            : arithmetic(operator, number(a), number(b));
    }
  }

  private static String string(Object value) {
    if (value instanceof String text) {
      return text;
    }
    throw wrong(value, "a string");
  }

  private static Number arithmetic(String operator, Number a, Number b) {
    double x = a.doubleValue();
    double y = b.doubleValue();
    if (y == 0 && "//%".contains(operator)) {
      throw new TemplateException("a division by 0");
    }
    boolean whole = a instanceof Long && b instanceof Long && !operator.equals("/");
    double result =
        switch (operator) {
          case "+" -> x + y;
          case "-" -> x - y;
          case "*" -> x * y;
          case "/" -> x / y;
          case "//" -> Math.floor(x / y);
          case "%" -> x - y * Math.floor(x / y);
          default -> Math.pow(x, y);
        };
    if (whole && Math.abs(result) > 1L << 53) {
      throw new TemplateException("the number " + result + " is too large");
    }
    return whole && result == Math.rint(result) ? (Number) (long) result : (Number) result;
  }

  /** Returns the part of a string or a list between two indexes; null for an end. */
  static Object slice(Object value, Object start, Object stop, Object step) {
    List<Object> items = items(value);
    long by = step == null ? 1 : number(step).longValue();
    if (by == 0) {
      throw new TemplateException("a slice with a step of 0");
    }
    long low = by > 0 ? 0 : -1;
    long high = low + items.size();
    List<Object> part = new ArrayList<>();
    long to = bound(stop, by > 0 ? high : low, items.size(), low, high);
    for (long i = bound(start, by > 0 ? low : high, items.size(), low, high);
        by > 0 ? i < to : i > to;
        i += by) {
      part.add(items.get((int) i));
    }
    return value instanceof String
        ? part.stream().map(Values::text).collect(Collectors.joining())
        : part;
  }

  private static long bound(Object value, long absent, int size, long low, long high) {
    if (value == null) {
      return absent;
    }
    long index = number(value).longValue();
    return Math.max(low, Math.min(high, index < 0 ? index + size : index));
  }

  /** Returns {@code value[key]}. */
  static Object item(Object value, Object key) {
    Map<?, ?> map =
        value instanceof Namespace namespace
            ? namespace.values()
            : value instanceof Map<?, ?> own ? own : Map.of();
    if (value instanceof Undefined) {
      throw wrong(value, "");
    } else if (key != null && map.containsKey(key)) {
      return map.get(key);
    } else if ((value instanceof List || value instanceof String) && key instanceof Long index) {
      List<?> items = value instanceof List<?> list ? list : items(value);
      long at = index < 0 ? index + items.size() : index;
      if (at >= 0 && at < items.size()) {
        return items.get((int) at);
      }
    }
    return new Undefined("'" + text(key) + "'");
  }

  /** Returns JSON as Python's {@code json.dumps} writes it; null as indent for one line. */
  static String json(Object value, String indent) {
    return json(value, indent, "\n");
  }

  private static String json(Object value, String indent, String line) {
    boolean list = value instanceof List;
    if (!list && !(value instanceof Map)) {
      if (value != null && !isNumber(value) && !(value instanceof String)) {
        throw wrong(value, "a value with JSON");
      }
      return scalar(value);
    }
    String inner = indent == null ? "" : line + indent;
    List<String> parts = new ArrayList<>();
    for (Object each : items(value)) {
      parts.add(
          list
              ? json(each, indent, inner)
              : scalar(text(each)) + ": " + json(map(value).get(each), indent, inner));
    }
    if (parts.isEmpty()) {
      return list ? "[]" : "{}";
    }
    String all = inner + String.join(indent == null ? ", " : "," + inner, parts);
    String end = indent == null ? "" : line;
    return list ? "[" + all + end + "]" : "{" + all + end + "}";
  }

  private static String scalar(Object value) {
    try {
      return JSON.writeValueAsString(value);
    } catch (JsonProcessingException e) {
      throw new TemplateException(e.getOriginalMessage());
    }
  }
}
