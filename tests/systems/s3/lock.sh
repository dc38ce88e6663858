#!/usr/bin/env bash
# Makes jars.lock from pom.xml (needs Maven, as the tests do not). What Spark has already is left out.
set -euo pipefail
unset CDPATH # by it, cd could go elsewhere
cd "$(dirname "${BASH_SOURCE[0]}")"
list=$(mktemp)
trap 'rm -f "$list"' EXIT
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:list -DincludeScope=runtime \
    -DexcludeGroupIds=commons-codec,commons-logging,io.netty,org.apache.httpcomponents,org.slf4j \
    -DoutputAbsoluteArtifactFilename=true -DoutputFile="$list"
{
    echo "# s3a:// for tests: sha256 and coordinate. Made by lock.sh."
    # group:artifact:jar:version:scope:file
    sed -nE 's/^ +([^:]+):([^:]+):jar:([^:]+):(compile|runtime):([^ ]+).*/\1:\2:\3 \5/p' "$list" | sort |
        while read -r coordinate file; do echo "$(sha256sum <"$file" | cut -d' ' -f1) $coordinate"; done
} >jars.lock
