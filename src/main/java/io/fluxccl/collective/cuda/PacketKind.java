package io.fluxccl.collective.cuda;

/** The kinds of packets of {@code packet_rows.cuh}. */
enum PacketKind {
  /** 4 bytes of payload in 8. */
  LL8("ll8", 128, 256),
  /** 120 bytes of payload in a line of 128. */
  LL128("ll128", 480, 512),
  /** All payload; floating-point types only. */
  SENTINEL("sentinel", 512, 512);

  private final String label;
  private final int payload;
  private final int size;

  PacketKind(String label, int payload, int size) {
    this.label = label;
    this.payload = payload;
    this.size = size;
  }

  /** In names of kernels and algorithms. */
  String label() {
    return label;
  }

  /** How many rows, each sent by a warp at once, hold that many bytes. */
  long rows(long bytes) {
    return (bytes + payload - 1) / payload;
  }

  /** Bytes of the rows that hold that many bytes. */
  long rowBytes(long bytes) {
    return rows(bytes) * size;
  }
}
