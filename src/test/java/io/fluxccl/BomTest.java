// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Test;
import org.w3c.dom.Element;
import org.w3c.dom.Node;
import org.w3c.dom.NodeList;

/** Holds bom/pom.xml, which has no parent, to what pom.xml says. */
class BomTest {
  private final Element library = read("pom.xml");
  private final Element bom = read("bom/pom.xml");
  private final Element jars = read("jars/pom.xml");

  @Test
  void shouldHaveTheVersionOfTheLibrary() {
    assertThat(text(bom, "version")).isEqualTo(text(library, "version"));
    assertThat(text(jars, "version")).isEqualTo(text(library, "version"));
    for (String same : List.of("groupId", "url", "licenses", "developers", "scm")) {
      assertThat(text(bom, same)).as(same).isEqualTo(text(library, same)).isNotBlank();
      assertThat(text(jars, same)).as(same).isEqualTo(text(library, same));
    }
  }

  @Test
  void shouldManageOnlyDependenciesOfTheLibrary() {
    List<String> known = dependencies(child(library, "dependencies"), library);
    List<String> artifacts =
        Stream.concat(Stream.of(""), modules(jars).map(module -> "-" + module))
            .map(jar -> "io.fluxccl:fluxccl" + jar + ":" + text(library, "version") + "::[]")
            .toList();
    known.addAll(artifacts);
    List<String> managed =
        dependencies(child(child(bom, "dependencyManagement"), "dependencies"), bom);
    assertThat(managed).hasSizeGreaterThan(1).isSubsetOf(known).containsAll(artifacts);
  }

  /** The folders of jars, without the library and the BOM, which lie elsewhere. */
  private static Stream<String> modules(Element jars) {
    return children(child(jars, "modules")).stream()
        .map(Element::getTextContent)
        .filter(module -> !module.startsWith(".."));
  }

  /** Coordinates and exclusions, with properties resolved. */
  private static List<String> dependencies(Element from, Element project) {
    List<String> found = new ArrayList<>();
    for (Element dependency : children(from)) {
      String version = text(dependency, "version");
      if (version.startsWith("${project")) {
        version = text(project, "version");
      } else if (version.startsWith("${")) {
        String name = version.substring(2, version.length() - 1);
        version = text(child(project, "properties"), name);
      }
      List<String> excluded = new ArrayList<>();
      children(child(dependency, "exclusions"))
          .forEach(exclusion -> excluded.add(text(exclusion, "artifactId")));
      found.add(
          String.join(
              ":",
              text(dependency, "groupId"),
              text(dependency, "artifactId"),
              version,
              text(dependency, "classifier"),
              excluded.toString()));
    }
    return found;
  }

  private static Element read(String file) {
    try {
      return DocumentBuilderFactory.newInstance()
          .newDocumentBuilder()
          .parse(Path.of(file).toFile())
          .getDocumentElement();
    } catch (Exception e) {
      throw new IllegalStateException(file, e);
    }
  }

  private static String text(Element parent, String name) {
    Element child = child(parent, name);
    return child == null ? "" : child.getTextContent().replaceAll("\\s+", " ").strip();
  }

  private static Element child(Element parent, String name) {
    return children(parent).stream()
        .filter(element -> element.getTagName().equals(name))
        .findFirst()
        .orElse(null);
  }

  private static List<Element> children(Element parent) {
    List<Element> found = new ArrayList<>();
    NodeList nodes = parent == null ? null : parent.getChildNodes();
    for (int i = 0; nodes != null && i < nodes.getLength(); i++) {
      if (nodes.item(i).getNodeType() == Node.ELEMENT_NODE) {
        found.add((Element) nodes.item(i));
      }
    }
    return found;
  }
}
