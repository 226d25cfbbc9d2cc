// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.springboot;

import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.IntView;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.StepLoop;
import java.nio.ByteBuffer;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;
import reactor.core.publisher.Mono;

/**
 * Each rank multiplies a number with its rank plus one, and all add up. Rank 0 serves {@code GET
 * /sum/NUMBER} and leads a step for each request; the others follow.
 */
@SpringBootApplication
public class SumApplication {
  public static void main(String[] args) {
    SpringApplication.run(SumApplication.class, args);
  }

  @RestController
  static final class Sums implements DisposableBean {
    private final RankGroup group;
    private final StepLoop loop;
    private final IntView x;

    Sums(RankGroup group, Collectives collectives) {
      this.group = group;
      x = group.device().allocateInts(1);
      loop =
          StepLoop.of(
              group,
              command -> {
                x.put(0, ByteBuffer.wrap(command).getInt() * (group.rank() + 1));
                return collectives.allReduce(x, ReduceOp.SUM);
              });
      if (group.rank() != 0) {
        loop.follow().subscribe(done -> {}, failure -> {}); // the health indicator has the failure
      }
    }

    @GetMapping("/sum/{number}")
    Mono<Integer> sum(@PathVariable int number) {
      byte[] command = ByteBuffer.allocate(Integer.BYTES).putInt(number).array();
      return loop.step(command).then(Mono.fromCallable(() -> x.get(0)));
    }

    @Override
    public void destroy() {
      if (group.rank() == 0) {
        loop.shutdown();
      }
      group.close(); // until then, steps of rank 0 may arrive here and use x
      x.close();
    }
  }
}
