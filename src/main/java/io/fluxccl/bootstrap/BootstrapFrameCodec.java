// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Confirm;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMembers;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMissing;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.bootstrap.BootstrapFrame.DumpRequest;
import io.fluxccl.bootstrap.BootstrapFrame.FormedAsProposed;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Hello;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Accept;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Beat;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Formed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Missed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Redirect;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Refuse;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Rejected;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.bootstrap.Roster.Term;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.lang.reflect.AnnotatedArrayType;
import java.lang.reflect.AnnotatedParameterizedType;
import java.lang.reflect.AnnotatedType;
import java.lang.reflect.Constructor;
import java.lang.reflect.RecordComponent;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.BiConsumer;
import java.util.function.Function;

/**
 * Writes and reads frames and other records, field by field in the order of their declaration.
 * Reading trusts nothing: whatever the bytes are, it returns a record within its {@link Limits} or
 * throws the error of the reader, and allocates no more than a small multiple of what arrived.
 */
final class BootstrapFrameCodec {
  static final int MAGIC = 0x464C5558;
  static final int VERSION = 10;
  static final int NONCE_BYTES = 32;
  static final int MAC_BYTES = 32;
  static final int MAX_RANKS = 1 << 16;
  static final int LAST_RANK = MAX_RANKS - 1;

  /** The longest frame of the handshake. */
  static final int HANDSHAKE_LIMIT = 256;

  /** The longest frame besides {@link Data}: a roster of all ranks that a job can have. */
  static final int CONTROL_LIMIT = 16 << 20;

  /** An upper bound of the bytes of a {@link Data} frame besides its message. */
  private static final int DATA_OVERHEAD = 64;

  /** The longest text, unless its limits differ. */
  static final int MAX_REASON_BYTES = 4096;

  static final int MAX_SETTINGS = 64;
  static final int MAX_SETTING_NAME_BYTES = 64;
  static final int MAX_SETTING_BYTES = 256;
  private static final int MIN_ADDRESS_BYTES = 11;
  private static final int MAX_INT = Integer.MAX_VALUE;

  /** The longest time that is sent: a hundred years, whose nanoseconds are a long. */
  private static final Duration MAX_TIME = Duration.ofDays(36_500);

  /**
   * A type's number is its index in this list. Greeting and Hello have the same numbers in all
   * versions, so that processes of two versions can name the difference.
   */
  private static final List<Class<? extends BootstrapFrame>> FRAMES =
      List.of(
          Greeting.class,
          Proof.class,
          Verdict.class,
          Data.class,
          Confirm.class,
          FormedAsProposed.class,
          Attach.class,
          Goodbye.class,
          DumpRequest.class,
          DumpReply.class,
          DumpMembers.class,
          DumpMissing.class,
          Join.class,
          Waiting.class,
          Redirect.class,
          Propose.class,
          Accept.class,
          Refuse.class,
          Formed.class,
          Missed.class,
          Rejected.class,
          Hello.class,
          Beat.class,
          Failed.class,
          Departed.class);

  private BootstrapFrameCodec() {}

  // ---- frames ----

  /** Returns the longest frame of a connection that carries messages up to a limit. */
  static int frameLimit(int messageLimit) {
    return Math.max(CONTROL_LIMIT, messageLimit + DATA_OVERHEAD);
  }

  /** Returns the frame without its length. Refers to the bytes of a message without a copy. */
  static ByteBuf encode(BootstrapFrame frame) {
    int type = FRAMES.indexOf(frame.getClass());
    WireWriter out = new WireWriter().uint8(type);
    if (hasVersion(type)) {
      out.header(MAGIC, VERSION);
    }
    write(out, frame);
    byte[] tail = frame instanceof Data data ? data.message() : BootstrapFrame.NO_BYTES;
    return Unpooled.wrappedBuffer(out.toBytes(), tail);
  }

  /**
   * Reads the one frame that the buffer holds, without its length.
   *
   * @throws TransportFailure if it holds anything else
   */
  static BootstrapFrame decode(ByteBuf bytes) {
    WireReader in = new WireReader(bytes.nioBuffer(), BootstrapFrameCodec::malformed);
    int type = readIndex(in, "type", FRAMES.size());
    if (hasVersion(type)) {
      readVersion(in);
    }
    BootstrapFrame frame = read(FRAMES.get(type), in);
    in.end();
    return frame;
  }

  private static boolean hasVersion(int type) {
    return FRAMES.get(type) == Greeting.class || FRAMES.get(type) == Hello.class;
  }

  private static void readVersion(WireReader in) {
    int magic = in.int32("magic");
    in.check(magic == MAGIC, "magic", Integer.toHexString(magic));
    int version = in.uint16("version");
    if (version != VERSION) {
      throw TransportFailure.of(
          TransportFailure.NO_RANK,
          "it has version %s of the bootstrap's protocol and this rank version %s; run the same"
              + " version of FluxCCL on all ranks",
          version,
          VERSION);
    }
  }

  static TransportFailure malformed(String problem) {
    return new TransportFailure(TransportFailure.NO_RANK, "malformed bootstrap frame: " + problem);
  }

  /** Writes a ballot as a message that only this version reads. */
  static byte[] encode(Ballot ballot) {
    return write(new WireWriter().header(MAGIC, VERSION), ballot).toBytes();
  }

  /**
   * Reads what {@link #encode(Ballot)} wrote.
   *
   * @throws TransportFailure if the bytes are anything else
   */
  static Ballot decodeBallot(byte[] bytes) {
    WireReader in = new WireReader(bytes, BootstrapFrameCodec::malformed).header(MAGIC, VERSION);
    Ballot ballot = read(Ballot.class, in);
    in.end();
    return ballot;
  }

  // ---- records ----

  /**
   * The values of a field that are read: of a number, the number of elements of a list, the bytes
   * of a text, which is cut when it is written, or the exact length of an array. An address with
   * limits may have port 0, and a roster with limits may be empty. Elements of a list of numbers
   * are ranks, unless they have limits.
   */
  @Retention(RetentionPolicy.RUNTIME)
  @Target(ElementType.TYPE_USE)
  @interface Limits {
    int least() default 0;

    int most() default Integer.MAX_VALUE;
  }

  /** Writes and reads the values of one type; each has at least a number of bytes. */
  private record Codec<T>(
      int leastBytes, BiConsumer<WireWriter, T> writer, Function<WireReader, T> reader) {
    @SuppressWarnings("unchecked") // the codec was made for the type of the value's field
    void write(WireWriter out, Object value) {
      writer.accept(out, (T) value);
    }
  }

  private static final ClassValue<Codec<?>> RECORDS =
      new ClassValue<>() {
        @Override
        protected Codec<?> computeValue(Class<?> type) {
          return ofRecord(type);
        }
      };

  /**
   * Writes a record.
   *
   * @return {@code out}
   */
  static WireWriter write(WireWriter out, Object value) {
    RECORDS.get(value.getClass()).write(out, value);
    return out;
  }

  /** Reads a record of a type. */
  static <R> R read(Class<R> type, WireReader in) {
    return type.cast(RECORDS.get(type).reader().apply(in));
  }

  private static Codec<?> ofRecord(Class<?> type) {
    RecordComponent[] fields = type.getRecordComponents();
    Class<?>[] types = Arrays.stream(fields).map(RecordComponent::getType).toArray(Class[]::new);
    Constructor<?> constructor = reflect(() -> type.getDeclaredConstructor(types));
    List<Codec<?>> codecs = new ArrayList<>();
    for (RecordComponent field : fields) {
      boolean isRest = type == Data.class && field.getType() == byte[].class;
      codecs.add(
          isRest ? REST : ofType(field.getType(), field.getAnnotatedType(), field.getName()));
    }
    return new Codec<>(
        codecs.stream().mapToInt(Codec::leastBytes).sum(),
        (out, value) -> {
          for (int i = 0; i < fields.length; i++) {
            RecordComponent field = fields[i];
            codecs.get(i).write(out, reflect(() -> field.getAccessor().invoke(value)));
          }
        },
        in -> {
          Object[] values = codecs.stream().map(each -> each.reader().apply(in)).toArray();
          return reflect(() -> constructor.newInstance(values));
        });
  }

  private static <T> T reflect(Callable<T> access) {
    try {
      return access.call();
    } catch (Exception e) {
      throw FluxCclException.from(e);
    }
  }

  /** The message of a {@link Data}, the rest of its frame, which is appended without a copy. */
  private static final Codec<byte[]> REST =
      new Codec<>(0, (out, message) -> {}, in -> in.raw("message", in.remaining()));

  private static Codec<?> ofType(Class<?> type, AnnotatedType declared, String field) {
    // An annotation before byte[] is one of the elements' type.
    Limits limits =
        (declared instanceof AnnotatedArrayType array
                ? array.getAnnotatedGenericComponentType()
                : declared)
            .getAnnotation(Limits.class);
    boolean isLimited = limits != null;
    int least = isLimited ? limits.least() : 0;
    int most = isLimited ? limits.most() : 0;
    if (type == List.class) {
      AnnotatedType element =
          ((AnnotatedParameterizedType) declared).getAnnotatedActualTypeArguments()[0];
      return ofList(field, least, ofType((Class<?>) element.getType(), element, field));
    } else if (type == int.class) {
      return isLimited ? ofInt(field, least, most) : ofInt(field, Integer.MIN_VALUE, MAX_INT);
    } else if (type == Integer.class) {
      return isLimited ? ofInt(field, least, most) : ofInt(field, 0, LAST_RANK);
    } else if (type == long.class) {
      return ofLong(field, isLimited ? least : Long.MIN_VALUE);
    } else if (type == boolean.class) {
      return new Codec<>(1, WireWriter::bool, in -> in.bool(field));
    } else if (type == byte[].class) {
      return isLimited
          ? new Codec<>(most, WireWriter::raw, in -> in.raw(field, most))
          : new Codec<>(Integer.BYTES, WireWriter::bytes, in -> in.bytes(field, MAX_INT));
    } else if (type == String.class) {
      return ofText(field, isLimited ? most : MAX_REASON_BYTES);
    } else if (type == Map.class) {
      return SETTINGS;
    } else if (type == Duration.class) {
      return ofTime(field);
    } else if (type == InetSocketAddress.class) {
      return isLimited ? ANY_ADDRESS : ADDRESS;
    } else if (type == Roster.class) {
      return ofRoster(isLimited ? 0 : 1);
    }
    return type.isEnum() ? ofEnum(field, type.getEnumConstants()) : RECORDS.get(type);
  }

  // ---- fields ----

  private static Codec<Integer> ofInt(String field, int least, int most) {
    return new Codec<>(Integer.BYTES, WireWriter::int32, in -> in.int32(field, least, most));
  }

  private static Codec<Long> ofLong(String field, long least) {
    return new Codec<>(Long.BYTES, WireWriter::int64, in -> in.int64(field, least, Long.MAX_VALUE));
  }

  private static Codec<String> ofText(String field, int most) {
    return new Codec<>(
        Integer.BYTES, (out, text) -> out.bytes(shorten(text, most)), in -> in.string(field, most));
  }

  private static Codec<Duration> ofTime(String field) {
    return new Codec<>(
        Long.BYTES,
        (out, time) -> out.int64((time.compareTo(MAX_TIME) < 0 ? time : MAX_TIME).toMillis()),
        in -> Duration.ofMillis(in.int64(field, 0, MAX_TIME.toMillis())));
  }

  private static final Codec<InetSocketAddress> ADDRESS =
      new Codec<>(MIN_ADDRESS_BYTES, UniqueId::writeAddress, UniqueId::readAddress);

  private static final Codec<InetSocketAddress> ANY_ADDRESS =
      new Codec<>(MIN_ADDRESS_BYTES, UniqueId::writeAddress, UniqueId::readAnyAddress);

  private static Codec<Object> ofEnum(String field, Object[] constants) {
    return new Codec<>(
        1,
        (out, value) -> out.uint8(((Enum<?>) value).ordinal()),
        in -> constants[readIndex(in, field, constants.length)]);
  }

  /** Reads an index in a list of some size. */
  static int readIndex(WireReader in, String field, int size) {
    int index = in.uint8(field);
    if (index >= size) {
      in.check(false, field, index + ", expected 0.." + (size - 1));
    }
    return index;
  }

  // The count is bounded by what has arrived, so that a false one can't make the list large.
  private static Codec<List<?>> ofList(String field, int least, Codec<?> element) {
    return new Codec<>(
        Integer.BYTES,
        (out, list) -> {
          out.int32(list.size());
          list.forEach(each -> element.write(out, each));
        },
        in -> {
          int most = Math.min(MAX_RANKS, in.remaining() / element.leastBytes());
          int count = in.int32(field, least, most);
          List<Object> elements = new ArrayList<>(count);
          for (int i = 0; i < count; i++) {
            elements.add(element.reader().apply(in));
          }
          return elements;
        });
  }

  private static final Codec<Map<String, String>> SETTINGS =
      new Codec<>(
          Integer.BYTES,
          (out, settings) -> {
            out.int32(settings.size());
            settings.forEach((name, value) -> out.string(name).string(value));
          },
          in -> {
            int count = in.int32("settings", 0, MAX_SETTINGS);
            Map<String, String> settings = new HashMap<>();
            for (int i = 0; i < count; i++) {
              String name = in.string("name", MAX_SETTING_NAME_BYTES);
              String before = settings.put(name, in.string("value", MAX_SETTING_BYTES));
              in.check(before == null, "name", name + " twice");
            }
            return settings;
          });

  /** The fields of a roster that are sent. */
  record SentRoster(
      Term term,
      Nonce nonce,
      List<Contact> members,
      List<@Limits(least = Roster.NEWCOMER, most = LAST_RANK) Integer> previousRanks) {}

  /** The latest roster that was written: a coordinator sends it to all its members. */
  private static volatile EncodedRoster encoded = new EncodedRoster(null, BootstrapFrame.NO_BYTES);

  private record EncodedRoster(Roster roster, byte[] bytes) {}

  private static Codec<Roster> ofRoster(int least) {
    return new Codec<>(
        RECORDS.get(SentRoster.class).leastBytes(),
        BootstrapFrameCodec::writeRoster,
        in -> readRoster(in, least));
  }

  private static void writeRoster(WireWriter out, Roster roster) {
    EncodedRoster latest = encoded;
    if (latest.roster != roster) {
      SentRoster sent =
          new SentRoster(roster.term(), roster.nonce(), roster.members(), roster.previousRanks());
      latest = new EncodedRoster(roster, write(new WireWriter(), sent).toBytes());
      encoded = latest;
    }
    out.raw(latest.bytes);
  }

  private static Roster readRoster(WireReader in, int least) {
    SentRoster sent = read(SentRoster.class, in);
    int size = sent.members().size();
    in.check(size >= least, "members", Integer.toString(size));
    int count = sent.previousRanks().size();
    in.check(count == size, "previousRanks", count + " of " + size);
    return size == 0
        ? Roster.NONE
        : new Roster(sent.term(), sent.nonce(), sent.members(), sent.previousRanks());
  }

  /** Returns a reason as it is sent: truncated if it is too long. */
  static String shortened(String message) {
    return new String(shorten(message, MAX_REASON_BYTES), StandardCharsets.UTF_8);
  }

  private static byte[] shorten(String text, int most) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    if (bytes.length <= most) {
      return bytes;
    }
    int end = most;
    // Not in the middle of a character.
    while (end > 0 && (bytes[end] & 0xC0) == 0x80) {
      end--;
    }
    return Arrays.copyOf(bytes, end);
  }
}
