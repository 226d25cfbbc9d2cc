// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

/** The ways in which bytes can move between two ranks. */
public enum Transport {
  /** Shared memory of one host; for memory of the host device. */
  SHM,
  /** CUDA IPC: GPUs of one host that can reach each other. */
  CUDA_IPC,
  /** RDMA device 0 of this machine. */
  IB0,
  /** RDMA device 1 of this machine. */
  IB1,
  /** RDMA device 2 of this machine. */
  IB2,
  /** RDMA device 3 of this machine. */
  IB3,
  /** RDMA device 4 of this machine. */
  IB4,
  /** RDMA device 5 of this machine. */
  IB5,
  /** RDMA device 6 of this machine. */
  IB6,
  /** RDMA device 7 of this machine. */
  IB7,
  /** TCP sockets. */
  ETHERNET,
  /** A network plugin with NCCL's interface. */
  NET
}
