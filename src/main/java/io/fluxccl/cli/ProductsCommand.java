// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.matmul.OverlapTable;
import io.fluxccl.matmul.OverlappedProducts;
import io.fluxccl.matmul.ProductShape;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

/**
 * {@code fluxccl perf products}: measures from which number of rows on products of a shape overlap
 * with communication, and writes an {@link OverlapTable}. Each rank is a process.
 */
@Command(
    sortOptions = false,
    description = {
      "Find from which number of rows on products overlap with communication:",
      "fluxccl perf products --ranks 2 --inputs 14336 --outputs 8192 --tune overlap.txt"
    })
final class ProductsCommand implements Callable<Integer> {
  private final CliContext context;

  @Spec private CommandSpec spec;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      description = "Start N ranks as processes. Without it this process is a launcher's rank.")
  private Integer ranks;

  @Option(
      names = "--inputs",
      paramLabel = "N",
      required = true,
      description = "Inputs of a rank's weights.")
  private int inputs;

  @Option(
      names = "--outputs",
      paramLabel = "N",
      required = true,
      description = "Outputs of a rank's weights.")
  private int outputs;

  @Option(
      names = {"-d", "--datatype"},
      paramLabel = "TYPE",
      defaultValue = "bfloat16",
      description = "bfloat16 (the default) or half.")
  private String type;

  @Option(
      names = "--rows",
      paramLabel = "N",
      split = ",",
      defaultValue = "128,512,2048,8192",
      description = "Numbers of rows of whole matrices, ascending. Default ${DEFAULT-VALUE}.")
  private int[] rows;

  @Option(
      names = "--tune",
      paramLabel = "FILE",
      required = true,
      description = "Write the rules to this file. Rules of other shapes in it stay.")
  private Path tune;

  @Mixin private final CollectiveCommandOptions choices = new CollectiveCommandOptions();

  ProductsCommand(CliContext context) {
    this.context = context;
  }

  @Override
  public Integer call() throws InterruptedException {
    PerfCommand.refuseOptionsInFront(spec);
    OptionalLibrary.MATMUL
        .missingReason()
        .ifPresent(
            missing -> {
              throw new InvalidUsage("products can't be measured: " + missing);
            });
    PerfOptions.requireRange("ranks", ranks, 2);
    OptionalInt wanted = ranks == null ? OptionalInt.empty() : OptionalInt.of(ranks);
    RankEnvironment environment = PerfCommand.rankOf(context, wanted);
    Run run = new Run(!environment.launched() || environment.rank() == 0);
    return environment.launched()
        ? run.tune()
        : PerfCommand.startRanks(context, spec, wanted, List.of());
  }

  /** A class of its own, because picocli inspects ProductsCommand without fluxccl-matmul, too. */
  private final class Run {
    private final ResultFile file = new ResultFile("tune", tune);
    private final ProductShape shape;
    private OverlapTable before = OverlapTable.DEFAULT;

    /** Refuses wrong options, and a file that can't be written or is another one. */
    Run(boolean writes) {
      int most = Arrays.stream(rows).max().orElse(0);
      shape = new ProductShape(inputs, outputs, DataType.ofLabel(type), most);
      if (writes) {
        file.requireWritable();
        before = Files.exists(file.path()) ? OverlapTable.read(file.path()) : before;
      }
    }

    int tune() {
      JoinOptions joining = choices.joining().apply(JoinOptions.fromEnvironment());
      try (RankGroup group = RankGroup.join(joining).join();
          OverlappedProducts products = OverlappedProducts.of(group.collectives(), shape).join()) {
        OverlapTable measured = products.tune(rows).join();
        if (measured.rules().isEmpty()) {
          throw InvalidUsage.of(
              "products of %d ranks with rows=%s on %s can't overlap; give each rank a GPU of one"
                  + " host, and numbers of rows that are multiples of the ranks",
              group.nRanks(), Arrays.toString(rows), group.device().description());
        }
        if (group.rank() == 0) {
          file.write(before.with(measured.rules()).toText());
          context.out().print(measured.toText());
        }
        return ExitCode.OK;
      }
    }
  }
}
