#!/usr/bin/env bash
# Makes jars-5.5.lock, jars-5.lock, jars-4.lock and jars-4.3.lock from pom.xml, jars-proxy.lock from pom-proxy.xml (needs Maven, as the tests do not).
# Native parts are left out: Java's own I/O will do.
set -euo pipefail
unset CDPATH # by it, cd could go elsewhere
cd "$(dirname "${BASH_SOURCE[0]}")"
list=$(mktemp)
trap 'rm -f "$list"' EXIT

lock() { # NAME WHAT POM [MAVEN OPTION …]
    mvn -q -B -f "$3" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:list "${@:4}" \
        -DincludeScope=runtime -DoutputAbsoluteArtifactFilename=true -DoutputFile="$list"
    {
        echo "# $2 for tests, with all it needs: sha256 and coordinate. Made by lock.sh."
        # group:artifact:jar:version:scope:file
        sed -nE 's/^ +([^:]+):([^:]+):jar:([^:]+):(compile|runtime):([^ ]+).*/\1:\2:\3 \5/p' "$list" | sort |
            while read -r coordinate file; do echo "$(sha256sum <"$file" | cut -d' ' -f1) $coordinate"; done
    } >"jars-$1.lock"
}

for version in 5.3.3 4.9.7; do
    lock "${version%%.*}" "RocketMQ $version" pom.xml -Drocketmq.version=$version
done
lock 5.5 "RocketMQ 5.5.1" pom.xml -Drocketmq.version=5.5.0 -Dbroker.version=5.5.1
lock 4.3 "RocketMQ 4.3.2" pom.xml -Drocketmq.version=4.3.2
lock proxy "RocketMQ 5.5.0 with its proxy, mqadmin and gRPC client" pom-proxy.xml
