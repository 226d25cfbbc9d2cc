// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import java.util.Arrays;
import java.util.List;

/**
 * Selects network interfaces by a list in the syntax of {@code NCCL_SOCKET_IFNAME}. The list {@code
 * eth,ib} has prefixes of names. A leading {@code =} makes them whole names; a leading {@code ^}
 * excludes the interfaces that match.
 *
 * @param names the list; empty for all interfaces that are not virtual
 * @param exact whether the list has whole names
 * @param excluded whether interfaces that match are excluded
 */
public record InterfaceFilter(List<String> names, boolean exact, boolean excluded) {
  private static final List<String> VIRTUAL =
      List.of("lo", "docker", "br-", "veth", "virbr", "cni", "ifb");

  /**
   * Parses a list.
   *
   * @param text the list; null or blank for all interfaces that are not virtual
   */
  static InterfaceFilter parse(String text) {
    String rest = text == null ? "" : text.trim();
    boolean excluded = rest.startsWith("^");
    rest = excluded ? rest.substring(1) : rest;
    boolean exact = rest.startsWith("=");
    rest = exact ? rest.substring(1) : rest;
    List<String> names =
        Arrays.stream(rest.split(",")).map(String::trim).filter(n -> !n.isEmpty()).toList();
    return new InterfaceFilter(names, exact, excluded);
  }

  boolean wants(String name) {
    if (names.isEmpty()) {
      return VIRTUAL.stream().noneMatch(name::startsWith);
    }
    return excluded != names.stream().anyMatch(n -> exact ? name.equals(n) : name.startsWith(n));
  }

  /** Returns whether no list was given; loopback is then used if there is no other interface. */
  boolean isDefault() {
    return names.isEmpty();
  }
}
