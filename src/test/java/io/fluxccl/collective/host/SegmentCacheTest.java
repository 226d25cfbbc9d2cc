// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DeviceFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.collective.host.SegmentCache.SegmentReference;
import io.fluxccl.device.host.SegmentName;
import io.fluxccl.device.host.SharedSegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.Test;

/** Mapping of segments that a peer references. */
class SegmentCacheTest {
  private static final int PEER = 3;
  private static final int SIZE = 1 << 16;

  private static SegmentReference reference(SegmentName name, long offset) {
    SegmentReference result = new SegmentReference();
    result.set(name, offset);
    return result;
  }

  private static long mapped(SegmentCache segments) {
    return Arrays.stream(segments.mapped).filter(Objects::nonNull).count();
  }

  @Test
  void shouldUseMemoryOfThisProcessWithoutRetainingIt() {
    SharedSegment segment = SharedSegment.create(SIZE);
    SegmentCache segments = new SegmentCache(PEER, true);
    SegmentReference reference = reference(segment.name(), 128);

    SharedSegment used = segments.use(reference, SIZE - 128);
    assertThat(used).isSameAs(segment);
    assertThat(segment.users()).isEqualTo(2);
    used.release();
    assertThat(segment.users()).isEqualTo(1);

    segment.release();
    TransportFailure closed =
        assertThrows(TransportFailure.class, () -> segments.use(reference, 1), "rank 3 has closed");
    assertThat(closed.rank()).isEqualTo(PEER);
    segments.close();
  }

  @Test
  void shouldEvictTheLeastRecentlyUsedSegment() {
    SegmentCache segments = new SegmentCache(PEER, false);
    List<SharedSegment> owned = new ArrayList<>();
    List<SharedSegment> mapped = new ArrayList<>();
    for (int i = 0; i < SegmentCache.CAPACITY; i++) {
      owned.add(SharedSegment.create(SIZE));
      mapped.add(segments.use(reference(owned.get(i).name(), 0), SIZE));
      mapped.get(i).release();
    }
    segments.use(reference(owned.get(0).name(), 0), SIZE).release();
    owned.add(SharedSegment.create(SIZE));
    segments.use(reference(owned.get(SegmentCache.CAPACITY).name(), 0), SIZE).release();

    assertThat(mapped).extracting(SharedSegment::users).containsExactly(1, 0, 1, 1, 1, 1, 1, 1);
    segments.close();
    assertThat(mapped).allMatch(segment -> segment.users() == 0);
    owned.forEach(SharedSegment::release);
  }

  @Test
  void shouldRefuseMoreThanASegmentHas() {
    SharedSegment segment = SharedSegment.create(SIZE);
    SegmentCache segments = new SegmentCache(PEER, false);
    for (SegmentReference lie :
        List.of(
            reference(segment.name(), 1),
            reference(segment.name(), -1),
            reference(segment.name(), SIZE + 1))) {
      assertThrows(TransportFailure.class, () -> segments.use(lie, SIZE), "of rank 3");
    }
    assertThat(mapped(segments)).isZero();
    segment.release();
  }

  @Test
  void shouldNameTheOwnersRankIfASegmentCannotBeMapped() {
    SharedSegment segment = SharedSegment.create(SIZE);
    SegmentName name = segment.name();
    segment.release();
    SegmentCache segments = new SegmentCache(PEER, false);
    TransportFailure failure =
        assertThrows(
            TransportFailure.class,
            () -> segments.use(reference(name, 0), SIZE),
            "memory of rank 3");
    assertThat(failure).hasCauseInstanceOf(DeviceFailure.class);
    assertThat(failure.rank()).isEqualTo(PEER);
    assertThat(mapped(segments)).isZero();
  }
}
