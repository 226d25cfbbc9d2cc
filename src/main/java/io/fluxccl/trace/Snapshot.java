// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;

/**
 * A tree of what a rank does: named fields, each a number, a text, a list, or a tree. A reader
 * finds fields by name, so it skips fields of a newer rank. A field that an older rank lacks reads
 * as 0, as the empty text or as the empty list. Immutable.
 *
 * <p>A rank has these fields:
 *
 * <ul>
 *   <li>{@code job}, {@code process}, {@code host}
 *   <li>{@code now_ns}: {@link System#nanoTime} of the snapshot
 *   <li>{@code silent}: for each {@code rank} that sends no heartbeat, how long at least: {@code
 *       silent_ns}
 *   <li>{@code groups}: the rank's communicators
 * </ul>
 *
 * <p>A group has these:
 *
 * <ul>
 *   <li>{@code id}, 0 for the job, and {@code group}: its name
 *   <li>{@code members}: the job's numbers of a sub-group's ranks; empty for the job
 *   <li>{@code failure}: empty while it works
 *   <li>{@code kernels_waited_for}: the rank, by its number in the group, for which kernels last
 *       began to wait long, or -1
 *   <li>{@code setups}: the set-ups in flight and the connections that don't work, a line each
 *   <li>{@code lanes}: see {@link FlightRecorder#add}; {@code calls}: see {@link CallRecord#tree},
 *       the oldest first; and {@code now_ns}
 * </ul>
 */
public final class Snapshot {
  /** The tree without fields. */
  public static final Snapshot EMPTY = new Snapshot(new Object[0]);

  /** In JSON, the value of a field that is not known: null. */
  public static final Object UNKNOWN = new Object();

  private static final int MAGIC = 0x464c5853;
  private static final int VERSION = 1;
  private static final int MOST_FIELDS = 64;
  private static final int MOST_LEVELS = 8;
  private static final int MOST_TEXT_BYTES = 1 << 16;
  private static final int NUMBER = 0;
  private static final int TEXT = 1;
  private static final int LIST = 2;
  private static final int TREE = 3;
  private static final double NANOS = 1e9;

  /** Names, each followed by its value. */
  private final Object[] fields;

  private Snapshot(Object[] fields) {
    this.fields = fields;
  }

  /**
   * Returns this tree with a field, in place of one of the same name.
   *
   * @param value an integer, a text, a tree or a list of them; null for none. Only for JSON also a
   *     double, which is null there unless it is finite, and {@link #UNKNOWN}
   */
  public Snapshot with(String name, Object value) {
    int at = find(name);
    if (value == null) {
      return this;
    }
    Object[] all = Arrays.copyOf(fields, Math.max(fields.length, at + 2));
    all[at] = name;
    all[at + 1] = leaf(value);
    return new Snapshot(all);
  }

  private static Object leaf(Object value) {
    if (value instanceof List<?> list) {
      return list.stream().map(Snapshot::leaf).toList();
    }
    return value instanceof Integer number ? (Object) number.longValue() : value;
  }

  private int find(String name) {
    int at = 0;
    while (at < fields.length && !fields[at].equals(name)) {
      at += 2;
    }
    return at;
  }

  /** Returns whether there is a field. */
  public boolean has(String name) {
    return find(name) < fields.length;
  }

  private Object value(String name) {
    return has(name) ? fields[find(name) + 1] : null;
  }

  /** Returns a number, or 0. */
  public long number(String name) {
    return value(name) instanceof Long number ? number : 0;
  }

  /** Returns a text, or the empty one. */
  public String text(String name) {
    return value(name) instanceof String text ? text : "";
  }

  /** Returns the trees of a list. */
  public List<Snapshot> trees(String name) {
    return list(name, Snapshot.class).toList();
  }

  /** Returns the texts of a list. */
  public List<String> texts(String name) {
    return list(name, String.class).toList();
  }

  /** Returns the numbers of a list, such as ranks. */
  public List<Integer> integers(String name) {
    return list(name, Long.class).map(Long::intValue).toList();
  }

  private <E> Stream<E> list(String name, Class<E> type) {
    List<?> all = value(name) instanceof List<?> list ? list : List.of();
    return all.stream().filter(type::isInstance).map(type::cast);
  }

  // ---- on the wire ----

  /** Returns the tree in the form that {@link #decode} reads. */
  public byte[] encode() {
    WireWriter out = new WireWriter().header(MAGIC, VERSION);
    write(this, out, new HashMap<>());
    return out.toBytes();
  }

  private static void write(Object value, WireWriter out, Map<String, Integer> texts) {
    if (value instanceof Snapshot tree) {
      writeNumber(tree.fields.length / 2, out.uint8(TREE));
      for (int i = 0; i < tree.fields.length; i += 2) {
        writeText((String) tree.fields[i], out, texts);
        write(tree.fields[i + 1], out, texts);
      }
    } else if (value instanceof List<?> list) {
      writeNumber(list.size(), out.uint8(LIST));
      list.forEach(each -> write(each, out, texts));
    } else if (value instanceof String text) {
      writeText(text, out.uint8(TEXT), texts);
    } else {
      writeNumber((Long) value, out.uint8(NUMBER));
    }
  }

  /** Writes the number of a text among those before it; or the next number, and the text. */
  private static void writeText(String text, WireWriter out, Map<String, Integer> texts) {
    Integer known = texts.putIfAbsent(text, texts.size());
    writeNumber(known == null ? texts.size() - 1 : known, out);
    if (known == null) {
      out.string(text);
    }
  }

  /** Writes seven bits a byte, the lowest first, with the sign in the lowest bit. */
  private static void writeNumber(long value, WireWriter out) {
    long rest = value << 1 ^ value >> (Long.SIZE - 1);
    for (; rest >>> 7 != 0; rest >>>= 7) {
      out.uint8((int) (rest & 0x7f | 0x80));
    }
    out.uint8((int) rest);
  }

  /**
   * Reads a tree that another process sent. Allocates no more than a small multiple of the bytes.
   *
   * @throws TransportFailure if it is malformed
   */
  public static Snapshot decode(byte[] bytes) {
    WireReader in =
        new WireReader(
            bytes,
            problem ->
                new TransportFailure(FluxCclException.NO_RANK, "malformed snapshot: " + problem));
    Object root = read(in.header(MAGIC, VERSION), new ArrayList<>(), 0);
    in.check(root instanceof Snapshot, "root", "no tree");
    in.end();
    return (Snapshot) root;
  }

  private static Object read(WireReader in, List<String> texts, int level) {
    int type = in.uint8("type");
    if (type == NUMBER) {
      return readNumber(in);
    }
    if (type == TEXT) {
      return readText(in, texts);
    }
    in.check(type == LIST || type == TREE, "type", "none of a value");
    in.check(level < MOST_LEVELS, "level", "too deep");
    int count = readCount(in, type == LIST ? in.remaining() / 2 : MOST_FIELDS);
    if (type == LIST) {
      List<Object> elements = new ArrayList<>(); // not of that size, which may be false
      for (int i = 0; i < count; i++) {
        elements.add(read(in, texts, level + 1));
      }
      return elements;
    }
    Snapshot tree = EMPTY;
    for (int i = 0; i < count; i++) {
      String name = readText(in, texts);
      in.check(!tree.has(name), name, "twice");
      tree = tree.with(name, read(in, texts, level + 1));
    }
    return tree;
  }

  private static String readText(WireReader in, List<String> texts) {
    int number = readCount(in, texts.size());
    if (number == texts.size()) {
      texts.add(in.string("text", MOST_TEXT_BYTES));
    }
    return texts.get(number);
  }

  private static int readCount(WireReader in, int most) {
    long count = readNumber(in);
    in.check(count >= 0 && count <= most, "count", "too large");
    return (int) count;
  }

  private static long readNumber(WireReader in) {
    long value = 0;
    int next = 0x80;
    for (int shift = 0; next >= 0x80; shift += 7) {
      in.check(shift < Long.SIZE, "number", "over 10 bytes");
      next = in.uint8("number");
      value |= (long) (next & 0x7f) << shift;
    }
    return value >>> 1 ^ -(value & 1);
  }

  // ---- as JSON ----

  /**
   * Returns the tree as JSON, a line for each field. Times are in seconds, with {@code _s} for the
   * {@code _ns} of their names.
   *
   * @param without names of fields to leave out
   */
  String json(Set<String> without) {
    StringBuilder out = new StringBuilder(1 << 10);
    print(this, "\n", without, out);
    return out.toString();
  }

  @Override
  public String toString() {
    return json(Set.of());
  }

  private static void print(Object value, String line, Set<String> without, StringBuilder out) {
    String separator = "";
    if (value instanceof Snapshot tree) {
      out.append('{');
      for (int i = 0; i < tree.fields.length; i += 2) {
        String name = (String) tree.fields[i];
        if (!without.contains(name)) {
          String seconds = name.replace("_ns", "_s");
          quote(seconds, out.append(separator).append(line).append("  "));
          Object field = seconds.equals(name) ? tree.fields[i + 1] : tree.number(name) / NANOS;
          print(field, line + "  ", without, out.append(" : "));
          separator = ",";
        }
      }
      out.append(line).append('}');
    } else if (value instanceof List<?> list) {
      out.append("[ ");
      for (Object each : list) {
        print(each, line, without, out.append(separator));
        separator = ", ";
      }
      out.append(list.isEmpty() ? "]" : " ]");
    } else if (value instanceof String text) {
      quote(text, out);
    } else {
      boolean isNumber = !(value instanceof Double number) || Double.isFinite(number);
      out.append(isNumber && value != UNKNOWN ? value : "null");
    }
  }

  private static void quote(String text, StringBuilder out) {
    out.append('"');
    for (char c : text.toCharArray()) {
      if (c < ' ') {
        out.append(Text.of("\\u%04X", (int) c));
      } else {
        out.append(c == '"' || c == '\\' ? "\\" : "").append(c);
      }
    }
    out.append('"');
  }
}
