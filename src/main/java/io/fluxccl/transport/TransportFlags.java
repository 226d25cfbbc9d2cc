// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.InvalidUsage;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/** A set of transports. Immutable. */
public final class TransportFlags {
  /** No transport. */
  public static final TransportFlags NONE = new TransportFlags(EnumSet.noneOf(Transport.class));

  private static final Transport[] ALL = Transport.values();

  private final Set<Transport> transports;

  private TransportFlags(EnumSet<Transport> transports) {
    this.transports = Collections.unmodifiableSet(transports);
  }

  /** Returns the set of the given transports. */
  public static TransportFlags of(Transport... transports) {
    EnumSet<Transport> set = EnumSet.noneOf(Transport.class);
    Collections.addAll(set, transports);
    return new TransportFlags(set);
  }

  /**
   * Returns the set of the transports that a list names.
   *
   * @param names comma-separated names, in any case; {@code IB} stands for IB0 to IB7
   * @return the set
   * @throws InvalidUsage if a name is not the name of a transport
   */
  public static TransportFlags parse(String names) {
    EnumSet<Transport> set = EnumSet.noneOf(Transport.class);
    for (String part : names.split(",")) {
      String name = part.strip().toUpperCase(Locale.ROOT);
      if (name.equals("IB")) {
        set.addAll(EnumSet.range(Transport.IB0, Transport.IB7));
        continue;
      }
      try {
        set.add(Transport.valueOf(name));
      } catch (IllegalArgumentException e) {
        throw new InvalidUsage(
            "transports=" + names + ": " + part.strip() + " is none of IB, " + List.of(ALL), e);
      }
    }
    return new TransportFlags(set);
  }

  /**
   * Returns the set that {@link #bits()} encodes.
   *
   * @param bits bit n for the transport of ordinal n
   * @return the set
   * @throws InvalidUsage if a bit is not the bit of a transport
   */
  public static TransportFlags ofBits(int bits) {
    if (bits >>> ALL.length != 0) {
      throw new InvalidUsage(
          "transport bits=0x" + Integer.toHexString(bits) + " name an unknown transport");
    }
    EnumSet<Transport> set = EnumSet.noneOf(Transport.class);
    for (Transport transport : ALL) {
      if ((bits & (1 << transport.ordinal())) != 0) {
        set.add(transport);
      }
    }
    return new TransportFlags(set);
  }

  /** Returns the set of this set's transports and one more. */
  public TransportFlags with(Transport transport) {
    EnumSet<Transport> set = EnumSet.noneOf(Transport.class);
    set.addAll(transports);
    set.add(transport);
    return new TransportFlags(set);
  }

  /** Returns whether the transport is in this set. */
  public boolean contains(Transport transport) {
    return transports.contains(transport);
  }

  /** Returns the transports, in order; unmodifiable. */
  public Set<Transport> asSet() {
    return transports;
  }

  /** Returns the set as bits: bit n for the transport of ordinal n. */
  public int bits() {
    int bits = 0;
    for (Transport transport : transports) {
      bits |= 1 << transport.ordinal();
    }
    return bits;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof TransportFlags
        && ((TransportFlags) other).transports.equals(transports);
  }

  @Override
  public int hashCode() {
    return transports.hashCode();
  }

  @Override
  public String toString() {
    return transports.toString();
  }
}
