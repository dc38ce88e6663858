#!/usr/bin/env bash
# Makes the certificates that tests of TLS use, valid for a century: an authority, and a server and a client signed by it.
set -euo pipefail
unset CDPATH # by it, cd could go elsewhere
cd "$(dirname "${BASH_SOURCE[0]}")"
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }
key ca
openssl req -x509 -new -key ca.key -subj "/CN=halfop tests" -days 36500 -out ca.pem
for name in server client; do
    key $name
    openssl req -new -key $name.key -subj "/CN=$name" |
        openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 36500 -out $name.pem \
            -extfile <(echo "subjectAltName=IP:127.0.0.1")
done
rm -f ca.key ca.srl
