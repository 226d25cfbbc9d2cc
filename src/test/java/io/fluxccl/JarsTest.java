// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.channel.RailNetwork;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.SourceFiles;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.transport.Transport;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.assertj.core.api.InstanceOfAssertFactories;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests which classes and files each jar has, and what it depends on, without packing it. */
@Timeout(120)
class JarsTest {
  private static final Path CLASSES = Path.of("target/classes");
  private static final int MOST_BYTES_OF_CORE = 2_000_000;

  /** The optional dependencies of the jar fluxccl: the packages that it uses, and what for. */
  private static final Map<String, String> OPTIONAL_OF_CORE =
      Map.of(
          "jcuda.", "GPUs: fluxccl-kernels and fluxccl-matmul bring it",
          "io.netty.handler.", "TLS of the bootstrap",
          "io.micrometer.", "GroupMeters, which an application with Micrometer calls",
          "reactor.blockhound.", "BlockHoundRules, which BlockHound loads");

  /** Artifacts that Maven adds for one that a pom declares, as far as our classes name them. */
  private static final Map<String, List<String>> BROUGHT_ALONG =
      Map.of(
          "reactor-core", List.of("reactive-streams", "jspecify"),
          "netty-transport", List.of("netty-buffer", "netty-common", "netty-resolver"),
          "netty-codec", List.of("netty-codec-base"),
          "junit-jupiter-api", List.of("junit-platform-commons", "opentest4j", "apiguardian-api"));

  private static final Pattern DEPENDENCY =
      Pattern.compile("<dependency>(.*?)</dependency>", Pattern.DOTALL);
  private static final Pattern ARTIFACT = Pattern.compile("<artifactId>(.*?)</artifactId>");
  private static final Pattern MISSING = Pattern.compile("-> (\\S+) +not found");

  @TempDir private static Path staged;

  /** The files of each folder under jars, and of core. */
  private static final Map<String, List<String>> FILES = new TreeMap<>();

  @BeforeAll
  static void stage() {
    TestJvms.run("sh", "jars/stage", CLASSES.toString(), staged.toString(), "classes");
    FILES.put("core", files(classesOf("core")));
    SourceFiles.under(Path.of("jars")).stream()
        .filter(file -> file.endsWith("contents"))
        .map(file -> file.getParent().getFileName().toString())
        .forEach(jar -> FILES.put(jar, files(classesOf(jar))));
  }

  private static Path classesOf(String jar) {
    return staged.resolve(jar).resolve("classes");
  }

  private static List<String> files(Path folder) {
    return SourceFiles.under(folder).stream()
        .map(file -> folder.relativize(file).toString())
        .toList();
  }

  @Test
  void shouldPutEachFileIntoOneJar() {
    Predicate<String> isOwn = file -> !file.startsWith("META-INF/");
    assertThat(FILES.values())
        .allSatisfy(own -> assertThat(own).contains("META-INF/LICENSE", "META-INF/NOTICE"));
    assertThat(FILES.values().stream().flatMap(List::stream).filter(isOwn))
        .containsExactlyInAnyOrderElementsOf(files(CLASSES).stream().filter(isOwn).toList());
  }

  @Test
  void shouldPutEachPackageIntoOneJar() {
    Map<String, Set<String>> jarsOf = new TreeMap<>();
    FILES.forEach(
        (jar, files) ->
            files.stream()
                .filter(file -> file.endsWith(".class"))
                .map(file -> file.substring(0, file.lastIndexOf('/')))
                .forEach(name -> jarsOf.computeIfAbsent(name, any -> new TreeSet<>()).add(jar)));
    assertThat(jarsOf).hasSizeGreaterThan(30).allSatisfy((name, in) -> assertThat(in).hasSize(1));
  }

  @Test
  void shouldDivideTheServicesAmongTheJarsOfTheirClasses() throws IOException {
    Predicate<String> isService = file -> file.startsWith("META-INF/services/");
    Set<String> names =
        FILES.values().stream().flatMap(List::stream).filter(isService).collect(Collectors.toSet());
    assertThat(names)
        .containsExactlyInAnyOrderElementsOf(files(CLASSES).stream().filter(isService).toList());
    for (String name : names) {
      List<String> lines = new ArrayList<>();
      for (String jar : FILES.keySet()) {
        Path file = classesOf(jar).resolve(name);
        List<String> own = Files.exists(file) ? Files.readAllLines(file) : List.of();
        assertThat(own)
            .allSatisfy(
                type ->
                    assertThat(classesOf(jar).resolve(type.replace('.', '/') + ".class")).exists());
        lines.addAll(own);
      }
      assertThat(lines)
          .as(name)
          .containsExactlyInAnyOrderElementsOf(Files.readAllLines(CLASSES.resolve(name)));
    }
  }

  @Test
  void shouldKeepTheJarOfUsersWithoutGpusSmall() throws IOException {
    Path core = classesOf("core");
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    try (ZipOutputStream zip = new ZipOutputStream(packed)) {
      for (String file : FILES.get("core")) {
        zip.putNextEntry(new ZipEntry(file));
        Files.copy(core.resolve(file), zip);
      }
    }
    assertThat(packed.size()).isBetween(1_000_000, MOST_BYTES_OF_CORE);
  }

  @Test
  void shouldNeedNothingElseForTheJarFluxccl() throws Exception {
    Set<String> missing = missing("core", classPath(declaredBy("pom.xml", false)));
    assertThat(missing)
        .allMatch(type -> OPTIONAL_OF_CORE.keySet().stream().anyMatch(type::startsWith));
    assertThat(OPTIONAL_OF_CORE.keySet())
        .allMatch(optional -> missing.stream().anyMatch(type -> type.startsWith(optional)));
  }

  @ParameterizedTest
  @ValueSource(strings = {"rdma", "nccl", "matmul", "training", "cli", "testkit"})
  void shouldNeedOnlyDeclaredDependencies(String jar) throws Exception {
    List<String> declared = new ArrayList<>(declaredBy("pom.xml", false));
    declared.addAll(declaredBy("jars/" + jar + "/pom.xml", true));
    List<Path> classPath = classPath(declared);
    classPath.add(classesOf("core"));
    FILES.keySet().stream()
        .filter(other -> declared.contains("fluxccl-" + other))
        .forEach(other -> classPath.add(classesOf(other)));
    assertThat(missing(jar, classPath)).isEmpty();
  }

  @Test
  void shouldNameTheJarThatACommandLacks() throws Exception {
    List<String> declared = new ArrayList<>(declaredBy("pom.xml", true));
    declared.addAll(declaredBy("jars/cli/pom.xml", true));
    List<Path> classPath = classPath(declared);
    classPath.addAll(List.of(classesOf("core"), classesOf("cli")));
    List<String> command = new ArrayList<>(List.of(java("java"), "-cp", joined(classPath)));
    command.addAll(List.of("io.fluxccl.cli.Main", "perf", "products"));
    command.addAll(List.of("--ranks=2", "--inputs=1", "--outputs=1", "--tune=overlap.txt"));
    try (ProcessRank process = TestJvms.program(command).keepErrors().startRank(0)) {
      assertThat(process.end()).isEqualTo(2);
      assertThat(process.errors())
          .singleElement(InstanceOfAssertFactories.STRING)
          .endsWith("add the Maven dependency io.fluxccl:fluxccl-matmul");
    }
  }

  /** Returns the artifacts that a pom gives to its users, and maybe those that they may add. */
  private static List<String> declaredBy(String pom, boolean optional) throws IOException {
    String text = Files.readString(Path.of(pom)).replaceAll("(?s)<dependencyManagement>.*", "");
    text = text.replaceAll("(?s)<exclusions>.*?</exclusions>", "");
    return DEPENDENCY
        .matcher(text)
        .results()
        .map(match -> match.group(1))
        .filter(dependency -> optional || !dependency.contains("<optional>true</optional>"))
        .filter(dependency -> !dependency.matches("(?s).*<scope>(test|provided)</scope>.*"))
        .map(dependency -> ARTIFACT.matcher(dependency).results().findFirst().orElseThrow())
        .map(artifact -> artifact.group(1))
        .toList();
  }

  private static List<Path> classPath(Collection<String> artifacts) {
    Set<String> wanted = new TreeSet<>(artifacts);
    artifacts.forEach(each -> wanted.addAll(BROUGHT_ALONG.getOrDefault(each, List.of())));
    return thirdParty()
        .filter(
            file ->
                wanted.contains(
                    file.getFileName().toString().replaceFirst("-\\d[\\w.]*(-linux.*)?\\.jar", "")))
        .collect(Collectors.toCollection(ArrayList::new));
  }

  private static Stream<Path> thirdParty() {
    return Arrays.stream(System.getProperty("java.class.path").split(":"))
        .filter(entry -> entry.endsWith(".jar"))
        .map(Path::of);
  }

  private static String java(String tool) {
    return Path.of(System.getProperty("java.home"), "bin", tool).toString();
  }

  private static String joined(List<Path> classPath) {
    return classPath.stream().map(Path::toString).collect(Collectors.joining(":"));
  }

  /** Returns the types that the classes of a jar name and that are nowhere on a class path. */
  private static Set<String> missing(String jar, List<Path> classPath) throws Exception {
    // A process, because jdeps prints in the language of its JVM.
    String output =
        TestJvms.run(
            List.of(
                java("jdeps"),
                "-J-Duser.language=en",
                "--multi-release",
                "17",
                "--missing-deps",
                "--class-path",
                joined(classPath),
                classesOf(jar).toString()));
    assertThat(output).doesNotContain("Error:");
    return MISSING
        .matcher(output)
        .results()
        .map(match -> match.group(1))
        .collect(Collectors.toCollection(TreeSet::new));
  }

  /** A jar's sources compile at run time, with the headers of that jar and of core. */
  @Test
  void shouldPutEachHeaderBesideTheSourcesThatIncludeIt() throws IOException {
    Path cuda = Path.of("io/fluxccl/cuda");
    Pattern include = Pattern.compile("#include [<\"]([\\w./]+\\.cuh)[>\"]");
    int found = 0;
    for (String jar : FILES.keySet()) {
      for (String file : FILES.get(jar)) {
        if (!file.startsWith(cuda + "/") || !file.matches(".*\\.cuh?")) {
          continue;
        }
        Matcher header = include.matcher(Files.readString(classesOf(jar).resolve(file)));
        while (header.find()) {
          String name = header.group(1);
          Path beside = Path.of(file).resolveSibling(name).normalize();
          Path own = cuda.resolve("include").resolve(name);
          assertThat(List.of(jar, "core"))
              .as("%s of the jar %s includes %s", file, jar, name)
              .anyMatch(
                  in ->
                      Stream.of(beside, own, cuda.resolve(name))
                          .anyMatch(place -> Files.exists(classesOf(in).resolve(place))));
          found++;
        }
      }
    }
    assertThat(found).isGreaterThan(20);
  }

  @Test
  void shouldRepeatTheVersionsOfThePom() throws IOException {
    String root = Files.readString(Path.of("pom.xml"));
    Pattern property = Pattern.compile("<(\\w+\\.version|project\\.build\\.\\w+)>(.*?)</\\1>");
    List<String> repeated =
        property
            .matcher(Files.readString(Path.of("jars/pom.xml")))
            .results()
            .map(match -> match.group())
            .toList();
    assertThat(repeated).hasSizeGreaterThan(5).allSatisfy(line -> assertThat(root).contains(line));
    String version = "<version>" + versionOf(root) + "</version>";
    for (String jar : FILES.keySet()) {
      if (!jar.equals("core")) {
        String pom = Files.readString(Path.of("jars", jar, "pom.xml"));
        assertThat(pom)
            .contains(
                version, "<artifactId>fluxccl-" + jar + "</artifactId>", "target/jars/" + jar);
        assertThat(Files.readString(Path.of("jars/pom.xml")))
            .contains(version, "<module>" + jar + "</module>");
      }
    }
  }

  private static String versionOf(String pom) {
    return pom.replaceFirst("(?s).*?<version>(.*?)</version>.*", "$1");
  }

  @Test
  void shouldNameTheJarThatIsMissing() throws Exception {
    List<String> command = new ArrayList<>();
    command.add(ProcessHandle.current().info().command().orElseThrow());
    command.addAll(TestJvms.ofBuild());
    String libraries = thirdParty().map(Path::toString).collect(Collectors.joining(":"));
    command.addAll(List.of("-cp", classesOf("core") + ":target/test-classes:" + libraries));
    command.addAll(List.of("-D" + RailNetwork.PROPERTY + "=1", CoreAlone.class.getName()));
    assertThat(TestJvms.run(command))
        .contains(
            "IB0: fluxccl-rdma is not on the class path; add the Maven dependency"
                + " io.fluxccl:fluxccl-rdma",
            "transport IB3 is not available: fluxccl-rdma is not on the class path",
            "transport NET is not available: fluxccl-nccl is not on the class path; add"
                + " the Maven dependency io.fluxccl:fluxccl-nccl",
            "NCCL_COLLNET_ENABLE=1, but the collective network is not used: fluxccl-nccl is not",
            "lanes opened: 2");
  }

  /** Uses, with the jar fluxccl alone, what other jars have. */
  static final class CoreAlone {
    private CoreAlone() {}

    public static void main(String[] args) {
      List<LocalBootstrap> ranks = LocalBootstrap.group(List.of(1L, 2L));
      List<CompletableFuture<Void>> lanes =
          ranks.stream()
              .map(
                  rank ->
                      CompletableFuture.runAsync(() -> run(rank), task -> new Thread(task).start()))
              .toList();
      lanes.forEach(CompletableFuture::join);
      System.out.println("lanes opened: " + lanes.size());
    }

    private static void run(LocalBootstrap bootstrap) {
      try (HostDevice device = HostDevice.create();
          Communicator communicator = Communicator.create(bootstrap, device)) {
        if (bootstrap.rank() == 0) {
          System.out.println("IB0: " + communicator.unusableBecause(Transport.IB0).orElseThrow());
          for (Transport transport : List.of(Transport.IB3, Transport.NET)) {
            communicator.connectOnSetup(0, 0, transport);
            try {
              communicator.setup().join();
            } catch (CompletionException e) {
              System.out.println("error: " + e.getCause().getMessage());
            }
          }
        }
        Collectives.create(communicator).join().close();
      }
    }
  }
}
