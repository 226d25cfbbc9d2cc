package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;

/**
 * Estimates of reductions in microseconds: latency plus bytes by rate. Fitted to measurements on
 * two H200, which have kernels of their own, and on eight, in graphs; those of large calls on two
 * and on four. The selector needs the sizes where the curves of two algorithms cross.
 */
final class ReduceModel {
  private static final double KIB = 1024;

  private ReduceModel() {}

  /** Returns the KiB that a rank sends: its input, and as much again to distribute results. */
  private static double sent(BoundCall call) {
    double part = call.totalBytes() / KIB / call.nRanks() * (call.nRanks() - 1);
    return isScatter(call) ? part : 2 * part;
  }

  private static boolean isScatter(BoundCall call) {
    return call.call().collective() == Collective.REDUCE_SCATTER;
  }

  static double oneShot(PacketArea.Kind kind, BoundCall call) {
    double sent = call.totalBytes() / KIB * (call.nRanks() - 1);
    if (call.nRanks() == 2) {
      return switch (kind) {
        case LL8 -> 1.97 + 0.03 * sent;
        case LL128 -> 2.25 + 0.004 * sent;
        case SENTINEL -> 2.3 + 0.0034 * sent;
      };
    }
    double base = 1.85 + 0.06 * call.nRanks();
    return switch (kind) {
      case LL8 -> base + 0.0104 * sent;
      case LL128 -> base + 0.19 + 0.004 * sent;
      case SENTINEL -> base + 0.35 + 0.004 * sent;
    };
  }

  static double twoShots(PacketArea.Kind kind, BoundCall call) {
    int n = call.nRanks();
    if (n == 2) {
      double latency = isScatter(call) ? 0 : 0.75;
      return switch (kind) {
        case LL8 -> 2.0 + latency + 0.03 * sent(call);
        case LL128 -> 2.25 + latency + 0.0034 * sent(call);
        case SENTINEL -> 2.4 + latency / 4 + 0.00292 * sent(call);
      };
    }
    return switch (kind) {
      case LL8 -> (isScatter(call) ? 2.15 : 3.4) + 0.0104 * sent(call);
      case LL128 -> (isScatter(call) ? 2.1 + 0.06 * n : 2.1 + 0.19 * n) + 0.0033 * sent(call);
      case SENTINEL -> (isScatter(call) ? 2.4 + 0.08 * n : 2.2 + 0.21 * n) + 0.00303 * sent(call);
    };
  }

  private static boolean isScatterOfPair(BoundCall call) {
    return call.nRanks() == 2 && isScatter(call);
  }

  static double bulk(BoundCall call) {
    if (!isScatter(call)) {
      return 6.8 + 0.00286 * sent(call);
    }
    int n = call.nRanks();
    // The line through large calls is too low for small ones.
    return Math.max(4.5 + 0.00286 * sent(call), 0.7 * n - 0.9 + (0.0024 + 0.0052 / n) * sent(call));
  }

  static double direct(BoundCall call) {
    int peers = call.nRanks() - 1;
    if (isScatterOfPair(call)) {
      return 15 + 0.00305 * sent(call);
    }
    return isScatter(call)
        ? 10 + 1.2 * peers + 0.00305 * sent(call)
        : 4 + 2.2 * peers + 0.0029 * sent(call);
  }

  static double staged(BoundCall call) {
    return isScatterOfPair(call)
        ? 14 + 0.0035 * sent(call)
        : 6 + 3 * (call.nRanks() - 1) + 0.0035 * sent(call);
  }

  static double copyEngines(BoundCall call) {
    int peers = call.nRanks() - 1;
    if (isScatterOfPair(call)) {
      return 72 + 0.0031 * sent(call);
    }
    return isScatter(call)
        ? 155 + 0.00265 * sent(call)
        : 20 + 100 * Math.min(peers, 3) + 0.0026 * sent(call);
  }
}
