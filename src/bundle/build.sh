#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs target/fluxccl-bundle.tar.gz: all that a node without Java, Maven or network needs to run
# FluxCCL, its GPU tests and its samples. Called by ./mvnw -Pbundle package.
#
#   src/bundle/build.sh JAVA_HOME JAR_NAME TEST_CLASS_PATH
set -euo pipefail
java_home=$1
jar_name=$2
class_path=$3
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
most_bytes=$((60 * 1024 * 1024))

root=target/bundle/fluxccl-bundle
rm -rf target/bundle
mkdir -p "$root"/{bin,lib/native,lib/test}

# The modules that jdeps finds in the libraries and the tests, and those that only strings name: the
# JDK's own management beans (bytes allocated, memory of the machine) and the agent that shows beans to
# others, JFR that Netty asks for, the socket options of Linux, the curves of TLS,
# and the agent that Mockito attaches.
modules=java.base,java.instrument,java.logging,java.management,java.naming,java.xml
modules+=,jdk.attach,jdk.crypto.ec,jdk.jfr,jdk.management,jdk.management.agent,jdk.net,jdk.unsupported
"$java_home/bin/jlink" --add-modules "$modules" --output "$root/runtime" \
  --no-header-files --no-man-pages --strip-debug --vm server
# Classes of the JDK shared between the JVMs of one machine, and ready at once.
"$root/runtime/bin/java" -Xshare:dump >/dev/null

# All of FluxCCL in one jar.
(cd target/bundle && "$java_home/bin/jar" --extract --file "../$jar_name.jar" META-INF/MANIFEST.MF)
"$java_home/bin/jar" --create --file "$root/lib/fluxccl.jar" --manifest target/bundle/META-INF/MANIFEST.MF \
  --main-class io.fluxccl.cli.Main -C target/classes .
"$java_home/bin/jar" --create --no-manifest --file "$root/lib/fluxccl-samples.jar" \
  -C target/test-classes io/fluxccl/samples
for library in target/lib/*.jar; do
  case ${library##*/} in
    # 24 MB of PTX compiler that nothing here calls; what is called lies unpacked in lib/native.
    jcuda-natives-*) natives=$library ;;
    *-linux-aarch_64.jar) ;;
    *) cp "$library" "$root/lib/" ;;
  esac
done
# NCCL's way in: it looks for the jars beside it, and for the runtime beside their folder.
if [ -f target/ncclnet/libnccl-net-fluxccl.so ]; then
  cp target/ncclnet/libnccl-net-fluxccl.so "$root/lib/"
else
  echo "libnccl-net-fluxccl.so is not in the bundle: it was not built" >&2
fi
(
  cd "$root/lib/native"
  driver=$("$java_home/bin/jar" --list --file "$OLDPWD/$natives" | grep '^lib/libJCudaDriver-.*\.so$')
  "$java_home/bin/jar" --extract --file "$OLDPWD/$natives" "$driver"
  mv "$driver" .
  rmdir lib
)

# The tests, and of their libraries what the GPU tests use. Other tests are in the jar, but not in
# its list of classes.
IFS=: read -r -a libraries <<<"$class_path"
for library in "${libraries[@]}"; do
  case ${library##*/} in
    junit-*.jar | opentest4j-*.jar | apiguardian-*.jar | open-test-reporting-*.jar | \
      assertj-*.jar | awaitility-*.jar | hamcrest-*.jar | reactor-test-*.jar | \
      mockito-*.jar | objenesis-*.jar | byte-buddy-agent-*.jar)
      cp "$library" "$root/lib/test/"
      ;;
    # Of the step server, a sample.
    reactor-netty-*.jar | netty-*.jar)
      [ -f "$root/lib/${library##*/}" ] || cp "$library" "$root/lib/"
      ;;
    byte-buddy-*.jar)
      # It holds all its classes twice, for old Javas and for newer ones: 4 MB less.
      mkdir target/bundle/byte-buddy
      (cd target/bundle/byte-buddy && "$java_home/bin/jar" --extract --file "$library")
      rm -r target/bundle/byte-buddy/META-INF/versions/9
      "$java_home/bin/jar" --create --file "$root/lib/test/${library##*/}" \
        --manifest target/bundle/byte-buddy/META-INF/MANIFEST.MF -C target/bundle/byte-buddy .
      ;;
  esac
done
tests=target/bundle/tests
cp -r target/test-classes "$tests"
find "$tests" \( -name '*FuzzTestInputs' -o -name 'jmh_generated' -o -name '*TestInputs' \) -prune -exec rm -rf {} +
# Compiling them on the node would cost each process seconds, and wants a compiler there.
if nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null); then
  for source in "$tests"/cuda/*.cu; do
    grep -q 'extern "C" __global__' "$source" || continue
    "$nvcc" -std=c++17 -fatbin -I src/main/cuda/include -gencode arch=compute_90,code=sm_90 \
      -gencode arch=compute_80,code=[sm_80,compute_80] -o "${source%.cu}.fatbin" "$source"
  done
fi
"$java_home/bin/java" --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED -cp "$class_path" \
  io.fluxccl.testing.GpuTests --list >"$tests/io/fluxccl/testing/gpu-classes.txt"
"$java_home/bin/jar" --create --no-manifest --file "$root/lib/test/fluxccl-tests.jar" -C "$tests" .

mkdir "$root/lib/exec"
cp src/main/exec/logback.xml "$root/lib/exec/"
cp fluxccl src/bundle/gpu-tests "$root/bin/"
chmod +x "$root"/bin/*
# The samples' scripts use this path.
ln -s bin/fluxccl "$root/fluxccl"
for folder in samples benchmarks docs; do
  mkdir "$root/$folder"
  git ls-files -z "$folder" 2>/dev/null | grep -zv '/java/' | xargs -0 -r cp --parents -t "$root"
done
cp README.md "$root/"

# Without the user and the time of packing.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C target/bundle -cf - fluxccl-bundle |
  gzip -9n >target/fluxccl-bundle.tar.gz
bytes=$(stat -c %s target/fluxccl-bundle.tar.gz)
echo "target/fluxccl-bundle.tar.gz: $((bytes / 1024)) KiB," \
  "$(wc -l <"$tests/io/fluxccl/testing/gpu-classes.txt") classes of GPU tests"
if [ "$bytes" -ge "$most_bytes" ]; then
  echo "target/fluxccl-bundle.tar.gz is larger than $((most_bytes / 1024 / 1024)) MiB" >&2
  exit 1
fi
