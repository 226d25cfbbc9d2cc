// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.TransportFailure;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import org.junit.jupiter.api.Test;

class CallHistoryTest {
  private static CallComparison.History of(long... counts) {
    CallComparison.History history = new CallComparison.History(CallComparison.History.KEPT);
    for (long count : counts) {
      history.add(1, count);
    }
    return history.copy();
  }

  private static CallComparison.History sent(CallComparison.History history) {
    WireWriter out = new WireWriter();
    history.write(out);
    return CallComparison.History.read(WireReader.ofPeer(out.toBytes(), "calls", 1));
  }

  @Test
  void shouldFindTheFirstCallThatDiffers() {
    assertThat(of(5, 6, 7, 8).firstDifference(sent(of(5, 9, 7)))).isEqualTo(2);
    assertThat(of(5, 6, 7).firstDifference(sent(of(5, 6, 7, 8)))).isZero();
    assertThat(of().firstDifference(sent(of(5)))).isZero();
  }

  @Test
  void shouldFindADifferenceOlderThanAMessage() {
    CallComparison.History mine = new CallComparison.History(CallComparison.History.KEPT);
    CallComparison.History theirs = new CallComparison.History(CallComparison.History.KEPT);
    mine.add(1, 1);
    theirs.add(1, 2);
    for (int i = 0; i < 3 * CallComparison.History.KEPT; i++) {
      mine.add(1, 3);
      theirs.add(1, 3);
    }
    assertThat(mine.copy().firstDifference(sent(theirs.copy()))).isEqualTo(mine.last());
  }

  @Test
  void shouldCompareNothingIfTheLatestCallsDoNotOverlap() {
    CallComparison.History mine = new CallComparison.History(CallComparison.History.KEPT);
    for (int i = 0; i < 2 * CallComparison.History.KEPT; i++) {
      mine.add(1, 3);
    }
    assertThat(mine.copy().firstDifference(sent(of(4, 4)))).isZero();
  }

  @Test
  void shouldForgetARemovedCall() {
    CallComparison.History mine = new CallComparison.History(CallComparison.History.KEPT);
    mine.add(1, 3);
    mine.add(1, 4);
    mine.removeLast();
    mine.add(1, 5);
    assertThat(mine.copy().firstDifference(sent(of(3, 5)))).isZero();
  }

  @Test
  void shouldRefuseMoreCallsThanThereWere() {
    byte[] message = new WireWriter().int64(1).int32(2).raw(new byte[48]).toBytes();
    assertThatThrownBy(() -> CallComparison.History.read(WireReader.ofPeer(message, "calls", 1)))
        .isInstanceOf(TransportFailure.class);
  }

  @Test
  void shouldNameAnySignatureThatAPeerSends() {
    CollectiveCall call = CollectiveCall.reduce(null, null, 7, DataType.FLOAT16, ReduceOp.AVG, 3);
    long what = CallSignature.what(call);
    assertThat(CallSignature.text(what, 7, false))
        .isEqualTo("reduce(count=7, FLOAT16, AVG, root=3)");
    assertThat(CallSignature.text(-1, -1, true)).startsWith("an unknown call(count=-1");
  }
}
