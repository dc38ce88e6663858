#!/usr/bin/env bash
# Makes jars-5.lock and jars-4.lock from pom.xml (needs Maven, as the tests do not). Native parts are left out: Java's own I/O will do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
list=$(mktemp)
trap 'rm -f "$list"' EXIT
for version in 5.3.3 4.9.7; do
    mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:list -Drocketmq.version=$version \
        -DincludeScope=runtime -DoutputAbsoluteArtifactFilename=true -DoutputFile="$list"
    {
        echo "# RocketMQ $version for tests, with all it needs: sha256 and coordinate. Made by lock.sh."
        # group:artifact:jar:version:scope:file
        sed -nE 's/^ +([^:]+):([^:]+):jar:([^:]+):(compile|runtime):([^ ]+).*/\1:\2:\3 \5/p' "$list" | sort |
            while read -r coordinate file; do echo "$(sha256sum <"$file" | cut -d' ' -f1) $coordinate"; done
    } >"jars-${version%%.*}.lock"
done
