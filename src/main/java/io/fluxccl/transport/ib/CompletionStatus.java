// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

/** The values of {@code ibv_wc_status}, by name and usual reason. */
enum CompletionStatus {
  SUCCESS(""),
  LOC_LEN_ERR("the device refuses messages of this length; give a smaller maxMessage"),
  LOC_QP_OP_ERR("the device found the request malformed"),
  LOC_EEC_OP_ERR(""),
  LOC_PROT_ERR("the source is not registered any more, or its pages were unmapped"),
  WR_FLUSH_ERR("the link was disconnected before it could be done"),
  MW_BIND_ERR(""),
  BAD_RESP_ERR("the peer's device answered out of order"),
  LOC_ACCESS_ERR("the source's registration does not allow this access"),
  REM_INV_REQ_ERR("the peer's device refuses such a request"),
  REM_ACCESS_ERR(
      "the peer's memory is not registered there: closed, or smaller than the peer announced"),
  REM_OP_ERR("the peer's device could not do it"),
  RETRY_EXC_ERR("the peer does not answer: its process, its NIC or the network between is down"),
  RNR_RETRY_EXC_ERR("the peer's queue pair is not ready"),
  LOC_RDD_VIOL_ERR(""),
  REM_INV_RD_REQ_ERR(""),
  REM_ABORT_ERR("the peer aborted it"),
  INV_EECN_ERR(""),
  INV_EEC_STATE_ERR(""),
  FATAL_ERR("the device has failed"),
  RESP_TIMEOUT_ERR("the peer's device did not respond in time"),
  GENERAL_ERR("the device reports no reason");

  private static final CompletionStatus[] ALL = values();

  private final String reason;

  CompletionStatus(String reason) {
    this.reason = reason;
  }

  /** Returns the name and the usual reason, for a message. */
  static String describe(int status) {
    if (status < 0 || status >= ALL.length) {
      return "ibv_wc_status " + status;
    }
    CompletionStatus known = ALL[status];
    return "IBV_WC_" + known.name() + (known.reason.isEmpty() ? "" : " (" + known.reason + ")");
  }
}
