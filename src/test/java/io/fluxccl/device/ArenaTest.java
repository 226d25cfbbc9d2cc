// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.UseCount;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.LongRange;
import net.jqwik.api.constraints.Size;
import org.junit.jupiter.api.Test;

@net.jqwik.api.Tag("jdk")
class ArenaTest {
  private static final long LENGTH = 4096;

  private final List<Block> blocks = new ArrayList<>();
  private Lifecycle lifecycle = new Lifecycle("device");

  private static final class Block extends UseCount {
    private boolean freed;

    @Override
    protected void lastUserLeft() {
      freed = true;
    }
  }

  private Arena<Block> arena() {
    return new Arena<>(
        lifecycle,
        LENGTH,
        () -> {
          blocks.add(new Block());
          return blocks.get(blocks.size() - 1);
        },
        block -> false);
  }

  @Property
  void shouldNeverAllocateOverlappingPieces(
      @ForAll @Size(min = 1, max = 100) List<@LongRange(min = 1, max = LENGTH) Long> sizes) {
    blocks.clear();
    lifecycle = new Lifecycle("device");
    Arena<Block> arena = arena();
    Set<List<Object>> cells = new HashSet<>();
    List<Arena.Piece<Block>> pieces = new ArrayList<>();
    int released = 0;
    for (long size : sizes) {
      Arena.Piece<Block> piece = arena.allocate(size);
      pieces.add(piece);
      assertThat(piece.offset() % Arena.ALIGNMENT).isZero();
      assertThat(piece.offset() + size).isLessThanOrEqualTo(LENGTH);
      assertThat(piece.block().freed).isFalse();
      for (long cell = 0; cell < size; cell += Arena.ALIGNMENT) {
        assertThat(cells.add(List.of(blocks.indexOf(piece.block()), piece.offset() + cell)))
            .isTrue();
      }
      if (size % 2 == 0) {
        pieces.get(released++).block().release(); // its memory must not be allocated again
      }
    }
    pieces.subList(released, pieces.size()).forEach(piece -> piece.block().release());
    assertThat(blocks.subList(0, blocks.size() - 1)).allMatch(block -> block.freed);
    assertThat(blocks.get(blocks.size() - 1).freed).isFalse();
    lifecycle.close();
    assertThat(blocks).allMatch(block -> block.freed);
  }

  @Test
  void shouldKeepABlockWhileAPieceOfItIsInUse() {
    Arena<Block> arena = arena();
    arena.open();
    arena.open();
    Arena.Piece<Block> piece = arena.allocate(1);
    assertThat(blocks).hasSize(1);
    lifecycle.close();
    assertThat(piece.block().freed).isFalse();
    piece.block().release();
    assertThat(piece.block().freed).isTrue();
  }

  @Test
  void shouldReleaseBlocksAllocatedAfterClose() {
    Arena<Block> arena = arena();
    lifecycle.close();
    Arena.Piece<Block> piece = arena.allocate(1);
    piece.block().release();
    assertThat(piece.block().freed).isTrue();
  }

  @Test
  void shouldStayUsableWhenABlockCanNotBeHad() {
    boolean[] fail = {true};
    Arena<Block> arena =
        new Arena<>(
            lifecycle,
            LENGTH,
            () -> {
              if (fail[0]) {
                throw new IllegalStateException("none");
              }
              return new Block();
            },
            block -> false);
    assertThrows(IllegalStateException.class, () -> arena.allocate(1));
    fail[0] = false;
    assertThat(arena.allocate(1).offset()).isZero();
  }
}
