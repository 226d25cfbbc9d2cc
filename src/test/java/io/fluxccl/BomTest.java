// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.xpath.XPath;
import javax.xml.xpath.XPathConstants;
import javax.xml.xpath.XPathExpressionException;
import javax.xml.xpath.XPathFactory;
import org.junit.jupiter.api.Test;
import org.w3c.dom.Node;
import org.w3c.dom.NodeList;

/** Holds bom/pom.xml, which has no parent, to what pom.xml says. */
class BomTest {
  private static final XPath XPATH = XPathFactory.newInstance().newXPath();

  private final Node library = read("pom.xml");
  private final Node bom = read("bom/pom.xml");
  private final Node jars = read("jars/pom.xml");

  @Test
  void shouldHaveTheVersionOfTheLibrary() {
    assertThat(text(bom, "/project/version")).isEqualTo(text(library, "/project/version"));
    assertThat(text(jars, "/project/version")).isEqualTo(text(library, "/project/version"));
    for (String same : List.of("groupId", "url", "licenses", "developers", "scm")) {
      String path = "/project/" + same;
      assertThat(text(bom, path)).as(same).isEqualTo(text(library, path)).isNotBlank();
      assertThat(text(jars, path)).as(same).isEqualTo(text(library, path));
    }
  }

  @Test
  void shouldManageOnlyDependenciesOfTheLibrary() {
    List<String> known = dependencies(library, "/project/dependencies/dependency");
    // The folders of jars, without the library and the BOM, which lie elsewhere.
    List<String> artifacts =
        Stream.concat(
                Stream.of(""),
                nodes(jars, "/project/modules/module[not(starts-with(., '..'))]")
                    .map(module -> "-" + module.getTextContent()))
            .map(
                jar ->
                    "io.fluxccl:fluxccl" + jar + ":" + text(library, "/project/version") + "::[]")
            .toList();
    known.addAll(artifacts);
    List<String> managed =
        dependencies(bom, "/project/dependencyManagement/dependencies/dependency");
    assertThat(managed).hasSizeGreaterThan(1).isSubsetOf(known).containsAll(artifacts);
  }

  /** Returns coordinates and exclusions, with properties resolved. */
  private static List<String> dependencies(Node project, String path) {
    return nodes(project, path)
        .map(
            dependency ->
                String.join(
                    ":",
                    text(dependency, "groupId"),
                    text(dependency, "artifactId"),
                    resolved(project, text(dependency, "version")),
                    text(dependency, "classifier"),
                    nodes(dependency, "exclusions/exclusion/artifactId")
                        .map(Node::getTextContent)
                        .toList()
                        .toString()))
        .collect(Collectors.toCollection(ArrayList::new));
  }

  private static String resolved(Node project, String version) {
    if (version.startsWith("${project")) {
      return text(project, "/project/version");
    }
    return version.startsWith("${")
        ? text(project, "/project/properties/" + version.substring(2, version.length() - 1))
        : version;
  }

  private static Node read(String file) {
    try {
      return DocumentBuilderFactory.newInstance()
          .newDocumentBuilder()
          .parse(Path.of(file).toFile());
    } catch (Exception e) {
      throw new IllegalStateException(file, e);
    }
  }

  private static String text(Node from, String path) {
    return nodes(from, path)
        .map(node -> node.getTextContent().replaceAll("\\s+", " ").strip())
        .collect(Collectors.joining());
  }

  private static Stream<Node> nodes(Node from, String path) {
    try {
      NodeList found = (NodeList) XPATH.evaluate(path, from, XPathConstants.NODESET);
      return IntStream.range(0, found.getLength()).mapToObj(found::item);
    } catch (XPathExpressionException e) {
      throw new IllegalArgumentException(path, e);
    }
  }
}
