package io.fluxccl.collective;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;

/**
 * How a tuning file is laid out, so that one that was edited can be written again: the lines with
 * which it begins, the rules in blocks below their comments, and the comments behind the last one.
 * A comment or an empty line begins another block. Immutable.
 *
 * @param heading from the first line to that of the columns, or to the last empty line before the
 *     rules; as they are
 * @param blocks of rules
 * @param ending comments below which there is no rule
 */
record TuningLayout(List<String> heading, List<Block> blocks, List<String> ending) {

  /**
   * Rules that no line parts.
   *
   * @param comments that stand above them
   * @param rules in order, at least one
   */
  record Block(List<String> comments, List<Tuning.Rule> rules) {}

  /** Rules only, below the usual heading. */
  static TuningLayout of(List<Tuning.Rule> rules) {
    return new TuningLayout(List.of(Tuning.HEADER, Tuning.Rule.columns()), List.of(), List.of())
        .with(rules);
  }

  /** All rules, in order. */
  List<Tuning.Rule> rules() {
    return blocks.stream().flatMap(block -> block.rules().stream()).toList();
  }

  /** Without some rules; a comment goes with the last of those below it. */
  TuningLayout without(Predicate<Tuning.Rule> gone) {
    List<Block> left = new ArrayList<>();
    for (Block block : blocks) {
      List<Tuning.Rule> rules = block.rules().stream().filter(gone.negate()).toList();
      if (!rules.isEmpty()) {
        left.add(new Block(block.comments(), rules));
      }
    }
    return new TuningLayout(heading, List.copyOf(left), ending);
  }

  /** With more rules, in a block of their own at the end. */
  TuningLayout with(List<Tuning.Rule> more) {
    if (more.isEmpty()) {
      return this;
    }
    List<Block> all = new ArrayList<>(blocks);
    all.add(new Block(List.of(), List.copyOf(more)));
    return new TuningLayout(heading, List.copyOf(all), ending);
  }

  /** The file. */
  String toText() {
    StringBuilder text = new StringBuilder();
    heading.forEach(line -> text.append(line).append('\n'));
    String gap = "";
    for (Block block : blocks) {
      text.append(gap);
      block.comments().forEach(line -> text.append(line).append('\n'));
      block.rules().forEach(rule -> text.append(rule.line()).append('\n'));
      gap = "\n";
    }
    text.append(ending.isEmpty() ? "" : gap);
    ending.forEach(line -> text.append(line).append('\n'));
    return text.toString();
  }

  /** A layout in the making, line by line. */
  static final class Draft {
    private final List<String> heading = new ArrayList<>();
    private final List<Block> blocks = new ArrayList<>();

    /** Comments of which it is not known yet what stands below them. */
    private final List<String> comments = new ArrayList<>();

    private boolean parted = true;

    /** Adds the line with the version. */
    void version(String line) {
      comments.add(line);
      endHeading();
    }

    /** Adds a line that is a comment or empty. */
    void comment(String line) {
      parted = true;
      if (!line.isBlank() || blocks.isEmpty()) {
        comments.add(line);
      }
      if (blocks.isEmpty() && (line.isBlank() || isOfColumns(line))) {
        endHeading();
      }
    }

    /** Adds a rule. */
    void rule(Tuning.Rule rule) {
      if (parted) {
        blocks.add(new Block(List.copyOf(comments), new ArrayList<>()));
        comments.clear();
        parted = false;
      }
      blocks.get(blocks.size() - 1).rules().add(rule);
    }

    TuningLayout done() {
      if (blocks.isEmpty() && !comments.isEmpty()) {
        comment("");
      }
      return new TuningLayout(
          List.copyOf(heading),
          blocks.stream().map(b -> new Block(b.comments(), List.copyOf(b.rules()))).toList(),
          List.copyOf(comments));
    }

    private void endHeading() {
      heading.addAll(comments);
      comments.clear();
    }

    private static boolean isOfColumns(String line) {
      return line.strip()
          .replaceAll("\\s+", " ")
          .equals(Tuning.Rule.columns().replaceAll("\\s+", " "));
    }
  }
}
