package io.fluxccl.netplugin.tcp;

import java.util.Arrays;
import java.util.List;

/**
 * Which network interfaces are wanted, in the words of {@code NCCL_SOCKET_IFNAME}: a list of
 * beginnings of names, {@code eth,ib}; behind {@code =} of whole names; behind {@code ^} of those
 * that are not wanted.
 *
 * @param names the list; empty for all that are not virtual
 * @param exact whether they are whole names
 * @param excluded whether they are the ones not wanted
 */
public record InterfaceFilter(List<String> names, boolean exact, boolean excluded) {
  private static final List<String> VIRTUAL =
      List.of("lo", "docker", "br-", "veth", "virbr", "cni", "ifb");

  /**
   * Reads a list.
   *
   * @param text null or blank for all that are not virtual
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

  /** Whether nobody chose, so that loopback may serve where there is nothing else. */
  boolean isDefault() {
    return names.isEmpty();
  }
}
